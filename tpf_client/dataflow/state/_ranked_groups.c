/* Ranked groups in C: row for row what `tests/support/ranked_groups.py` does.

   The window is a ring of entries, numbered as they came. Each has a time, and for each branch the
   slot of its group, its numbers, and its fields of an EXISTS. Groups, and the keys by which rows
   meet in an EXISTS, are in hash tables with linear probing; what is in a table has a slot, whose
   number is not reused meanwhile. The best groups are an array of slots in their order.

   Room for some rows is reserved before they come. Where memory runs out nothing is shown any more:
   the caller drops the state. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TAG_BITS 3
#define INTEGER 1
#define SCALE_BITS 5
#define MOST_PLACES 18
#define NONE (-1)
#define WITH_ROW INT64_MIN
#define RESERVED_ROWS 64
#define EXPORTED __attribute__((visibility("default")))

/* Fields of an EXISTS in an entry. */
enum { LEFT, RIGHT, MINE, THEIRS, NEXT_LEFT, NEXT_RIGHT, PASSES, GATE_FIELDS };

/* As `flat` in `ranked_groups.py` lays them out: a condition of the order; what is at a place of a
   row behind the keys (a size where `median` is `NONE`, else a middle); a branch. */
typedef struct { int64_t place, over, descending; } Condition;
typedef struct { int64_t branch, median, high; } Place;

typedef struct {
    int64_t width, least, most, medians, other_width, gated, negated;
    /* Its first field in an entry, that of its EXISTS, its first list of a group, its column. */
    int64_t group, gate, list, column;
} Shape;

/* Slots for tuples of cells: `table` has the number of a slot and one, or 0. */
typedef struct {
    int64_t keys;
    int64_t *cell, *held, *free_slot, *table;
    size_t slots, slot_count, count, room;
} Table;

/* Numbers in their order. */
typedef struct { int64_t *cell; size_t count, room; } Ordered;

/* Rows that meet: chains of entries, oldest first, and the most that those on the right have. */
typedef struct { int64_t left_first, left_last, right_first, right_last, most; } Partner;

/* What a branch keeps: the first entries that are not gone, and who meets. */
typedef struct {
    int64_t gone, other_gone;
    Table partners;
    Partner *partner;
} Branch;

/* The sizes of a ranking. `ticks`: stop at each instant at which something goes; `apart`: stop
   before a row for which something went. */
typedef struct {
    int64_t keys, offset, wanted, width, apart, ticks, branches, conditions, ties, places;
    int64_t lists, stride, columns;
} Sizes;

/* `changed`: what is shown may have changed with the row that came last, or, where it is not
   `WITH_ROW`, at the instant `passed` before the next one. These are read from outside. */
typedef struct {
    int64_t changed, passed;
    int64_t *given;
    Sizes is;
    const Shape *shape;
    const Place *place;
    const Condition *order;
    const int64_t *tie;
    Branch *branch;
    ptrdiff_t reserve, best_count;
    int64_t now;
    int failed, all_best;
    /* The window: `log_room` is a power of two; entries from `first` to before `next`. */
    int64_t *log, first, next;
    size_t log_room;
    /* Of each slot: rows that each branch counts, medians, what decides first. */
    Table groups;
    int64_t *size, *touched, *best;
    Ordered *ordered;
    __int128 *lead;
    unsigned char *is_touched, *is_best;
    size_t touched_count;
} Ranked;

static int64_t *entry_of(const Ranked *self, int64_t number)
{
    return self->log + ((size_t)number & (self->log_room - 1)) * (size_t)self->is.stride;
}

/* Make an array longer, given where the pointer to it is; returns 0 where that fails. */
static int longer(void *array, size_t count, size_t each)
{
    void *grown;
    if (each && count > (size_t)PTRDIFF_MAX / each)
        return 0;
    memcpy(&grown, array, sizeof grown);
    grown = realloc(grown, count * each + 1);
    if (grown == NULL)
        return 0;
    memcpy(array, &grown, sizeof grown);
    return 1;
}

/* ------------------------------------------------------------------------------- tables */

static uint64_t hash_of(const int64_t *cells, int64_t keys)
{
    uint64_t hash = (uint64_t)keys;
    for (int64_t n = 0; n < keys; n++) {
        hash += UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)cells[n];
        hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
        hash ^= hash >> 31;
    }
    return hash;
}

static const int64_t *cells_of(const Table *table, int64_t slot)
{
    return table->cell + slot * table->keys;
}

static size_t place_of(const Table *table, const int64_t *cells)
{
    size_t mask = table->room - 1, place = hash_of(cells, table->keys) & mask;
    size_t bytes = (size_t)table->keys * sizeof(int64_t);
    while (table->table[place] &&
           memcmp(cells_of(table, table->table[place] - 1), cells, bytes) != 0)
        place = (place + 1) & mask;
    return place;
}

/* Make room for `more` keys than there are now. */
static int reserve_slots(Table *self, size_t more)
{
    size_t slots = self->slots, room = self->room ? self->room : 128, before = self->room;
    while (slots - self->count < more)
        slots = slots ? 2 * slots : 64;
    if (slots > self->slots) {
        if (!longer(&self->cell, slots, (size_t)self->keys * sizeof(int64_t)) ||
            !longer(&self->held, slots, sizeof(int64_t)) ||
            !longer(&self->free_slot, slots, sizeof(int64_t)))
            return 0;
        self->slots = slots;
    }
    while (room < 2 * (self->count + more))
        room *= 2;
    if (room == before)
        return 1;
    int64_t *table = calloc(room, sizeof(int64_t)), *old = self->table;
    if (table == NULL)
        return 0;
    self->table = table;
    self->room = room;
    for (size_t n = 0; n < before; n++)
        if (old[n])
            table[place_of(self, cells_of(self, old[n] - 1))] = old[n];
    free(old);
    return 1;
}

/* The slot of some cells, which is held once more. */
static int64_t hold(Table *self, const int64_t *cells, int *is_new)
{
    size_t place = place_of(self, cells);
    *is_new = !self->table[place];
    if (*is_new) {
        size_t free_count = self->slot_count - self->count;
        int64_t slot = free_count ? self->free_slot[free_count - 1] : (int64_t)self->slot_count++;
        memcpy(self->cell + slot * self->keys, cells, (size_t)self->keys * sizeof(int64_t));
        self->held[slot] = 0;
        self->table[place] = slot + 1;
        self->count++;
    }
    self->held[self->table[place] - 1]++;
    return self->table[place] - 1;
}

/* Forget a slot that nothing holds. */
static void drop(Table *self, int64_t slot)
{
    size_t mask = self->room - 1, gap = place_of(self, cells_of(self, slot)), place = gap;
    /* Move back what would not be found behind the gap. */
    while (self->table[place = (place + 1) & mask]) {
        size_t home = hash_of(cells_of(self, self->table[place] - 1), self->keys) & mask;
        if (((place - home) & mask) >= ((place - gap) & mask)) {
            self->table[gap] = self->table[place];
            gap = place;
        }
    }
    self->table[gap] = 0;
    self->free_slot[self->slot_count - self->count--] = slot;
}

static void free_table(Table *self)
{
    free(self->cell);
    free(self->held);
    free(self->free_slot);
    free(self->table);
}

/* -------------------------------------------------------------------------------- order */

static __int128 value_of(int64_t cell)
{
    static const int64_t power[MOST_PLACES + 1] = {
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000,
        100000000000, 1000000000000, 10000000000000, 100000000000000, 1000000000000000,
        10000000000000000, 100000000000000000, 1000000000000000000,
    };
    int64_t rest = cell >> TAG_BITS, scale = rest & ((1 << SCALE_BITS) - 1);
    if ((cell & ((1 << TAG_BITS) - 1)) == INTEGER)
        return (__int128)rest * power[MOST_PLACES];
    return (__int128)(rest >> SCALE_BITS) * power[scale < MOST_PLACES ? MOST_PLACES - scale : 0];
}

static Ordered *ordered_of(const Ranked *self, int64_t branch, int64_t slot, int64_t median)
{
    return self->ordered + slot * self->is.lists + self->shape[branch].list + median;
}

/* What is shown of a group at a place of a row. */
static int64_t shown_of(const Ranked *self, int64_t slot, int64_t place)
{
    if (place < self->is.keys)
        return cells_of(&self->groups, slot)[place];
    const Place *behind = self->place + (place - self->is.keys);
    if (behind->median == NONE)
        return self->size[slot * self->is.branches + behind->branch];
    const Ordered *numbers = ordered_of(self, behind->branch, slot, behind->median);
    return numbers->count ? numbers->cell[(numbers->count - !behind->high) / 2] : 0;
}

/* What a group is ordered by, in parts of 10^-18. */
static __int128 amount(const Ranked *self, int64_t slot, const Condition *by)
{
    int64_t cell = shown_of(self, slot, by->place), behind = by->place - self->is.keys;
    int is_size = behind >= 0 && self->place[behind].median == NONE;
    __int128 value = value_of(is_size ? cell * (1 << TAG_BITS) | INTEGER : cell);
    if (behind >= 0 && !is_size)
        value = (value + value_of(shown_of(self, slot, by->place + 1))) / 2;
    if (by->over != NONE)
        value /= shown_of(self, slot, by->over);
    return by->descending ? -value : value;
}

/* True if a group comes before another one. */
static int is_before(const Ranked *self, int64_t one, int64_t other)
{
    if (self->lead[one] != self->lead[other])
        return self->lead[one] < self->lead[other];
    for (int n = 1; n < self->is.conditions; n++) {
        __int128 a = amount(self, one, self->order + n), b = amount(self, other, self->order + n);
        if (a != b)
            return a < b;
    }
    for (int64_t n = 0; n < self->is.ties; n++) {
        int64_t a = shown_of(self, one, self->tie[n]), b = shown_of(self, other, self->tie[n]);
        if (a != b)
            return a < b;
    }
    return 0;
}

static int is_whole(const Ranked *self, int64_t slot)
{
    const int64_t *sizes = self->size + slot * self->is.branches;
    for (int64_t n = 0; n < self->is.branches; n++)
        if (sizes[n] < self->shape[n].least || sizes[n] > self->shape[n].most)
            return 0;
    return 1;
}

static void cut(Ranked *self, ptrdiff_t count)
{
    while (self->best_count > count)
        self->is_best[self->best[--self->best_count]] = 0;
}

/* Put a slot among the best, unless it is behind the last one and others are left out; returns
   where, or `PTRDIFF_MAX`. */
static ptrdiff_t put(Ranked *self, int64_t slot)
{
    ptrdiff_t low = 0, high = self->best_count;
    if (!self->all_best && (!high || is_before(self, self->best[high - 1], slot)))
        return PTRDIFF_MAX;
    while (low < high) {
        ptrdiff_t middle = low + (high - low) / 2;
        if (is_before(self, slot, self->best[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    memmove(self->best + low + 1, self->best + low,
            (size_t)(self->best_count - low) * sizeof(int64_t));
    self->best[low] = slot;
    self->best_count++;
    self->is_best[slot] = 1;
    return low;
}

static void choose_anew(Ranked *self)
{
    cut(self, 0);
    self->all_best = 1;
    for (size_t n = 0; n < self->groups.room; n++) {
        int64_t slot = self->groups.table[n] - 1;
        if (slot < 0 || !is_whole(self, slot))
            continue;
        put(self, slot);
        if (self->best_count > self->reserve) {
            cut(self, self->reserve);
            self->all_best = 0;
        }
    }
}

static void drop_group(Ranked *self, int64_t slot)
{
    drop(&self->groups, slot);
    for (int64_t n = 0; n < self->is.lists; n++) {
        Ordered *numbers = self->ordered + slot * self->is.lists + n;
        free(numbers->cell);
        memset(numbers, 0, sizeof(Ordered));
    }
}

/* Put what was touched where it belongs now; returns 1 if that may matter to what is shown. */
static int placed(Ranked *self)
{
    int matters = 0;
    for (size_t n = 0; n < self->touched_count; n++) {
        int64_t slot = self->touched[n];
        self->is_touched[slot] = 0;
        if (!self->is_best[slot])
            continue;
        ptrdiff_t place = 0;
        while (self->best[place] != slot)
            place++;
        self->best_count--;
        memmove(self->best + place, self->best + place + 1,
                (size_t)(self->best_count - place) * sizeof(int64_t));
        self->is_best[slot] = 0;
        matters |= place < self->is.wanted;
    }
    /* What decides first, of all of them, before any is compared. */
    for (size_t n = 0; n < self->touched_count; n++)
        if (is_whole(self, self->touched[n]))
            self->lead[self->touched[n]] = amount(self, self->touched[n], self->order);
    for (size_t n = 0; n < self->touched_count; n++) {
        int64_t slot = self->touched[n];
        if (!self->groups.held[slot])
            drop_group(self, slot);
        else if (is_whole(self, slot))
            matters |= put(self, slot) < self->is.wanted;
    }
    self->touched_count = 0;
    if (self->best_count > 2 * self->reserve) {
        cut(self, self->reserve);
        self->all_best = 0;
    } else if (self->best_count < self->is.wanted && !self->all_best) {
        choose_anew(self);
        matters = 1;
    }
    return matters;
}

/* ------------------------------------------------------------------------------- groups */

static void touch(Ranked *self, int64_t slot)
{
    if (!self->is_touched[slot]) {
        self->is_touched[slot] = 1;
        self->touched[self->touched_count++] = slot;
    }
}

/* One number more or less, in the order of their values. */
static int change_ordered(Ordered *numbers, int64_t cell, int sign)
{
    __int128 value = value_of(cell);
    size_t low = 0, high = numbers->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        __int128 other = value_of(numbers->cell[middle]);
        if (other < value || (other == value && numbers->cell[middle] < cell))
            low = middle + 1;
        else
            high = middle;
    }
    if (sign > 0 && numbers->count == numbers->room) {
        size_t room = numbers->room ? 2 * numbers->room : 4;
        if (!longer(&numbers->cell, room, sizeof(int64_t)))
            return 0;
        numbers->room = room;
    }
    int64_t *there = numbers->cell + low;
    size_t behind = (numbers->count - low) * sizeof(int64_t);
    if (sign > 0) {
        memmove(there + 1, there, behind);
        *there = cell;
    } else {
        memmove(there, there + 1, behind - sizeof(int64_t));
    }
    numbers->count += (size_t)sign;
    return 1;
}

/* One more or one less row of a group. */
static void count(Ranked *self, int64_t branch, const int64_t *entry, int sign)
{
    const Shape *shape = self->shape + branch;
    int64_t slot = entry[shape->group];
    self->size[slot * self->is.branches + branch] += sign;
    touch(self, slot);
    for (int64_t n = 0; n < shape->medians && !self->failed; n++)
        if (!change_ordered(ordered_of(self, branch, slot, n), entry[shape->group + 1 + n], sign))
            self->failed = 1;
}

/* ------------------------------------------------------------------------------- EXISTS */

/* Count again the rows of a partner's left side, after `most` became another one. */
static void look_again(Ranked *self, int64_t branch, const Partner *partner)
{
    const Shape *shape = self->shape + branch;
    for (int64_t number = partner->left_first; number != NONE;) {
        int64_t *entry = entry_of(self, number), *gate = entry + shape->gate;
        int passes = (partner->most > gate[MINE]) != shape->negated;
        if (passes != gate[PASSES]) {
            gate[PASSES] = passes;
            count(self, branch, entry, passes ? 1 : -1);
        }
        number = gate[NEXT_LEFT];
    }
}

static Partner *partner_of(Branch *branch, int64_t key, int64_t *slot)
{
    int is_new;
    *slot = hold(&branch->partners, &key, &is_new);
    if (is_new)
        branch->partner[*slot] = (Partner){NONE, NONE, NONE, NONE, INT64_MIN};
    return branch->partner + *slot;
}

/* A row comes to both sides; `given` has its keys here and there, and its values. */
static void enter_gate(Ranked *self, int64_t branch, int64_t number, const int64_t *given)
{
    const Shape *shape = self->shape + branch;
    int64_t *entry = entry_of(self, number), *gate = entry + shape->gate;
    gate[NEXT_LEFT] = gate[NEXT_RIGHT] = gate[LEFT] = NONE;
    gate[PASSES] = 0;
    gate[MINE] = given[2];
    gate[THEIRS] = given[3];
    Partner *right = partner_of(self->branch + branch, given[1], gate + RIGHT);
    if (right->right_first == NONE)
        right->right_first = number;
    else
        entry_of(self, right->right_last)[shape->gate + NEXT_RIGHT] = number;
    right->right_last = number;
    if (gate[THEIRS] > right->most) {
        right->most = gate[THEIRS];
        look_again(self, branch, right);
    }
    if (entry[shape->group] == NONE)
        return;
    Partner *left = partner_of(self->branch + branch, given[0], gate + LEFT);
    if (left->left_first == NONE)
        left->left_first = number;
    else
        entry_of(self, left->left_last)[shape->gate + NEXT_LEFT] = number;
    left->left_last = number;
    gate[PASSES] = (left->most > gate[MINE]) != shape->negated;
    if (gate[PASSES])
        count(self, branch, entry, 1);
}

/* A row is too old for a branch. */
static void leave(Ranked *self, int64_t branch, int64_t number)
{
    const Shape *shape = self->shape + branch;
    const int64_t *entry = entry_of(self, number), *gate = entry + shape->gate;
    int64_t slot = entry[shape->group];
    if (slot == NONE)
        return;
    if (!shape->gated || gate[PASSES])
        count(self, branch, entry, -1);
    if (!--self->groups.held[slot])
        touch(self, slot);
    if (!shape->gated)
        return;
    Partner *left = self->branch[branch].partner + gate[LEFT];
    left->left_first = gate[NEXT_LEFT];
    if (!--self->branch[branch].partners.held[gate[LEFT]])
        drop(&self->branch[branch].partners, gate[LEFT]);
}

/* A row is too old for the right side of an EXISTS. */
static void leave_gate(Ranked *self, int64_t branch, int64_t number)
{
    int64_t place = self->shape[branch].gate, most = INT64_MIN;
    const int64_t *gate = entry_of(self, number) + place;
    Partner *right = self->branch[branch].partner + gate[RIGHT];
    right->right_first = gate[NEXT_RIGHT];
    for (int64_t n = right->right_first; n != NONE && most < right->most;) {
        const int64_t *other = entry_of(self, n) + place;
        most = other[THEIRS] > most ? other[THEIRS] : most;
        n = other[NEXT_RIGHT];
    }
    if (most != right->most) {
        right->most = most;
        look_again(self, branch, right);
    }
    if (!--self->branch[branch].partners.held[gate[RIGHT]])
        drop(&self->branch[branch].partners, gate[RIGHT]);
}

/* --------------------------------------------------------------------------------- rows */

/* Make room for so many rows. */
static int reserve(Ranked *self, size_t rows)
{
    size_t each = (size_t)self->is.stride * sizeof(int64_t), room = self->log_room, before;
    while (room < (size_t)(self->next - self->first) + rows)
        room = room ? 2 * room : 64;
    if (room > self->log_room) {
        int64_t *log = room > (size_t)PTRDIFF_MAX / each ? NULL : malloc(room * each);
        if (log == NULL)
            return 0;
        for (int64_t n = self->first; n < self->next; n++)
            memcpy(log + ((size_t)n & (room - 1)) * (size_t)self->is.stride, entry_of(self, n), each);
        free(self->log);
        self->log = log;
        self->log_room = room;
    }
    for (int64_t n = 0; n < self->is.branches; n++) {
        Branch *branch = self->branch + n;
        if (!reserve_slots(&branch->partners, 2 * rows) ||
            !longer(&branch->partner, branch->partners.slots, sizeof(Partner)))
            return 0;
    }
    size_t lists = (size_t)self->is.lists, branches = (size_t)self->is.branches;
    before = self->groups.slots;
    if (!reserve_slots(&self->groups, rows * branches))
        return 0;
    size_t slots = self->groups.slots;
    if (slots == before)
        return 1;
    if (!longer(&self->ordered, slots * lists, sizeof(Ordered))) {
        self->groups.slots = before;
        return 0;
    }
    memset(self->ordered + before * lists, 0, (slots - before) * lists * sizeof(Ordered));
    return longer(&self->size, slots * branches, sizeof(int64_t)) &&
           longer(&self->lead, slots, sizeof(__int128)) &&
           longer(&self->is_touched, slots, 1) && longer(&self->is_best, slots, 1) &&
           longer(&self->touched, slots, sizeof(int64_t)) &&
           longer(&self->best, slots, sizeof(int64_t));
}

/* The instant at which an entry is too old; never, where it has not come. */
static int64_t end_of(const Ranked *self, int64_t number, int64_t width)
{
    return number < self->next ? entry_of(self, number)[0] + width + 1 : INT64_MAX;
}

/* Let go what is too old at an instant. */
static void let_go(Ranked *self, int64_t at)
{
    self->now = at;
    for (int64_t n = 0; n < self->is.branches; n++) {
        const Shape *shape = self->shape + n;
        Branch *branch = self->branch + n;
        while (end_of(self, branch->gone, shape->width) <= at)
            leave(self, n, branch->gone++);
        while (shape->gated && end_of(self, branch->other_gone, shape->other_width) <= at)
            leave_gate(self, n, branch->other_gone++);
    }
    while (end_of(self, self->first, self->is.width) <= at)
        self->first++;
}

/* Let time pass to before an instant, or to when what is shown may have changed; returns 1 then. */
static int pass(Ranked *self, int64_t until)
{
    for (;;) {
        int64_t at = INT64_MAX;
        for (int64_t n = 0; n < self->is.branches; n++) {
            const Shape *shape = self->shape + n;
            int64_t end = end_of(self, self->branch[n].gone, shape->width);
            at = end < at ? end : at;
            end = shape->gated ? end_of(self, self->branch[n].other_gone, shape->other_width) : at;
            at = end < at ? end : at;
        }
        if (at >= until)
            return 0;
        let_go(self, self->is.ticks ? at : until - 1);
        if (self->touched_count && placed(self)) {
            self->passed = self->now;
            self->changed = 1;
            return 1;
        }
    }
}

/* Take a row; returns 1 if it may have changed what is shown. */
static int take(Ranked *self, const int64_t *row)
{
    let_go(self, row[0]);
    int64_t number = self->next++, *entry = entry_of(self, number);
    entry[0] = row[0];
    for (int64_t n = 0; n < self->is.branches; n++) {
        const Shape *shape = self->shape + n;
        const int64_t *cells = row + shape->column, *rest = cells + self->is.keys;
        entry[shape->group] = NONE;
        if (*rest++) {
            int is_new;
            int64_t slot = entry[shape->group] = hold(&self->groups, cells, &is_new);
            if (is_new) {
                memset(self->size + slot * self->is.branches, 0,
                       (size_t)self->is.branches * sizeof(int64_t));
                self->is_touched[slot] = self->is_best[slot] = 0;
            }
            memcpy(entry + shape->group + 1, rest, (size_t)shape->medians * sizeof(int64_t));
            if (!shape->gated)
                count(self, n, entry, 1);
        }
        if (shape->gated)
            enter_gate(self, n, number, rest);
    }
    return self->touched_count && placed(self);
}

/* ------------------------------------------------------------------------- for Python */

EXPORTED void ranked_free(Ranked *self)
{
    for (size_t n = 0; self->ordered && n < self->groups.slots * (size_t)self->is.lists; n++)
        free(self->ordered[n].cell);
    for (int64_t n = 0; n < self->is.branches; n++) {
        free_table(&self->branch[n].partners);
        free(self->branch[n].partner);
    }
    free_table(&self->groups);
    void *arrays[] = {self->given, self->branch,     self->log,     self->size,    self->ordered,
                      self->lead,  self->is_touched, self->is_best, self->touched, self->best};
    for (size_t n = 0; n < sizeof(arrays) / sizeof(arrays[0]); n++)
        free(arrays[n]);
    free(self);
}

/* The ranking of which `given` has so many numbers, with nothing in it; `NULL`: no memory. */
EXPORTED Ranked *ranked_new(const int64_t *given, int64_t count)
{
    size_t bytes = (size_t)count * sizeof(int64_t);
    Ranked *self = calloc(1, sizeof(Ranked));
    if (self == NULL)
        return NULL;
    memcpy(&self->is, given, sizeof(Sizes));
    self->branch = calloc((size_t)self->is.branches, sizeof(Branch));
    self->given = malloc(bytes);
    if (self->branch == NULL || self->given == NULL) {
        self->is.branches = 0;
        ranked_free(self);
        return NULL;
    }
    memcpy(self->given, given, bytes);
    self->shape = (const Shape *)(self->given + sizeof(Sizes) / sizeof(int64_t));
    self->place = (const Place *)(self->shape + self->is.branches);
    self->order = (const Condition *)(self->place + self->is.places);
    self->tie = (const int64_t *)(self->order + self->is.conditions);
    self->groups.keys = self->is.keys;
    for (int64_t n = 0; n < self->is.branches; n++)
        self->branch[n].partners.keys = 1;
    self->reserve = 3 * self->is.wanted < 32 ? 32 : 3 * self->is.wanted;
    self->passed = self->now = WITH_ROW;
    self->all_best = 1;
    return self;
}

/* Take rows until one may have changed what is shown, or that changed before a row (see `Sizes`).
   Returns the first row that was not taken; -1 where memory ran out. */
EXPORTED int64_t ranked_run(Ranked *self, const int64_t *rows, int64_t start, int64_t stop)
{
    int64_t row = start;
    self->changed = 0;
    self->passed = WITH_ROW;
    for (; row < stop && !self->changed && !self->failed; row++) {
        const int64_t *here = rows + row * self->is.columns;
        if ((row - start) % RESERVED_ROWS == 0 && !reserve(self, RESERVED_ROWS))
            self->failed = 1;
        else if ((self->is.ticks || self->is.apart) && pass(self, here[0] + self->is.apart))
            break;
        else
            self->changed = take(self, here);
    }
    return self->failed ? -1 : row;
}

/* Let time pass until an instant, or until what is shown may have changed. */
EXPORTED void ranked_pass_to(Ranked *self, int64_t until)
{
    self->changed = 0;
    pass(self, until + 1);
}

/* Write the rows of the groups that are shown; returns how many there are. */
EXPORTED int64_t ranked_shown(const Ranked *self, int64_t *cells)
{
    ptrdiff_t last = self->best_count < self->is.wanted ? self->best_count : self->is.wanted;
    for (ptrdiff_t n = self->is.offset; n < last; n++)
        for (int64_t place = 0; place < self->is.keys + self->is.places; place++)
            *cells++ = shown_of(self, self->best[n], place);
    return last > self->is.offset ? last - self->is.offset : 0;
}

/* Of this file, as it was compiled: the caller sees whether it still is the one. */
EXPORTED const int64_t ranked_source = SOURCE;
