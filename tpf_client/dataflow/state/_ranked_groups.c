/* Ranked groups in C: what ranked_groups.py says, row for row.

   The window is a ring of entries, numbered as they came. Each has a time, a subject, and for each
   branch what is known of it there. Its subjects are in a set; groups, and the rows that a gate
   lets meet, in tables: open addressing with linear probing, and what is deleted leaves no gap.
   What is in a table has a slot, whose number is never that of another meanwhile. The best groups
   are an array of slots in their order. A row makes no Python object; no code of others runs
   meanwhile.

   Everything that a row may need is reserved before it changes anything. So where memory runs out,
   the state is that after the row before. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TAG_BITS 3
#define INTEGER 1
#define DATE_TIME 3
#define SCALE_BITS 5
#define MOST_PLACES 18
#define NONE (-1)
#define WITH_ROW INT64_MIN
#define MOST_KEYS 64
#define MOST_BRANCHES 8
#define MOST_NUMBERS 8
#define FEW 4

/* Where the fields of a gate are in an entry, from its first one. */
enum { LEFT, RIGHT, MINE, THEIRS, NEXT_LEFT, NEXT_RIGHT, PASSES, GATE_FIELDS };
/* What is kept of the numbers of a group: as `Number` has it. */
enum { MEDIAN, SUM, LEAST, MOST, KINDS };
/* What is shown of it: the number or the lower one in the middle, the higher one; or of a sum. */
enum { LOW, HIGH, DECIMALS, PARTS };

typedef struct {
    int place, over, descending;
} Condition;

/* Slots for tuples of cells: `table` has the number of a slot and one, or 0. */
typedef struct {
    int keys;
    int64_t *cell, *held, *free_slot, *table;
    size_t slots, slot_count, free_count, count, room;
} Table;

/* The numbers of a group in their order. */
typedef struct {
    int64_t *cell;
    size_t count, room;
} Ordered;

/* Their sum, in parts of 10^-18, and how many are decimals. */
typedef struct {
    __int128 sum;
    int64_t decimals;
} Total;

/* Numbers of a branch: of which kind, and where they are: of a group, in an entry, in a batch. */
typedef struct {
    int kind, of_group, cell, column;
    int64_t *spare;
} Number;

/* What is at a place of a row behind the keys: a size (`number` is `NONE`), or a number's part. */
typedef struct {
    int branch, number, part;
} Place;

/* Rows that meet: chains of entries, oldest first, and the most that those on the right have. */
typedef struct {
    int64_t left_first, left_last, right_first, right_last, most;
} Partner;

typedef struct {
    int64_t width, other_width, least, most;
    int gated, negated, numbers;
    Number number[MOST_NUMBERS];
    /* Where its fields are in an entry, and its columns in a batch. */
    int group, gate, column, gate_column;
    /* The first entries that are not gone. */
    int64_t gone, other_gone;
    Table partners;
    Partner *partner;
} Branch;

typedef struct {
    PyObject_HEAD
    int keys, conditions, ties, branches, lists, totals, stride, columns, row_width;
    Condition *order;
    int *tie;
    Branch *branch;
    Place *place;
    Py_buffer *column;
    Py_ssize_t offset, wanted, reserve;
    int64_t width;
    char apart, ticks, changed, refused;
    /* At which instant, before the next row, what is shown changed; or `WITH_ROW`. */
    int64_t passed;
    /* The window: `log_room` is a power of two; entries from `first` to before `next`. */
    int64_t *log;
    size_t log_room;
    int64_t first, next;
    /* Its subjects; `subject_used` says which places are taken. */
    int64_t *subject;
    unsigned char *subject_used;
    size_t subject_room;
    /* Of groups: how many rows each branch counts, their numbers, what decides first. */
    Table groups;
    int64_t *size;
    Ordered *ordered;
    Total *total;
    __int128 *lead;
    unsigned char *is_touched, *is_best;
    int64_t *touched, *best;
    size_t touched_count;
    Py_ssize_t best_count;
    int all_best;
    /* What was shown before the last row came. */
    int64_t *before;
    Py_ssize_t before_count;
} Ranked;

static const int64_t power[MOST_PLACES + 1] = {
    1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000,
    100000000000, 1000000000000, 10000000000000, 100000000000000, 1000000000000000,
    10000000000000000, 100000000000000000, 1000000000000000000,
};

static uint64_t mixed(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t hash_of(const int64_t *cells, int keys)
{
    uint64_t found = (uint64_t)keys;
    for (int n = 0; n < keys; n++)
        found = mixed(found + UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)cells[n]);
    return found;
}

static int64_t *entry_of(const Ranked *self, int64_t number)
{
    return self->log + ((size_t)number & (self->log_room - 1)) * (size_t)self->stride;
}

/* ------------------------------------------------------------------------------- memory */

/* Make an array longer, given where the pointer to it is; whether that could be done. */
static int longer(void *array, size_t count, size_t each)
{
    void *found;
    if (each && count > (size_t)PY_SSIZE_T_MAX / each)
        return 0;
    size_t bytes = count * each;
    /* Pointers of every type are written here: as bytes, since none may be read as another. */
    memcpy(&found, array, sizeof found);
    found = realloc(found, bytes > 0 ? bytes : 1);
    if (found == NULL)
        return 0;
    memcpy(array, &found, sizeof found);
    return 1;
}

static int reserve_log(Ranked *self)
{
    size_t count = (size_t)(self->next - self->first), each = (size_t)self->stride * 8;
    if (count < self->log_room)
        return 1;
    size_t room = self->log_room ? 2 * self->log_room : 64;
    if (room > (size_t)PY_SSIZE_T_MAX / each)
        return 0;
    int64_t *log = malloc(room * each);
    if (log == NULL)
        return 0;
    for (int64_t n = self->first; n < self->next; n++)
        memcpy(log + ((size_t)n & (room - 1)) * (size_t)self->stride, entry_of(self, n), each);
    free(self->log);
    self->log = log;
    self->log_room = room;
    return 1;
}

static size_t place_of_subject(const Ranked *self, int64_t subject)
{
    size_t mask = self->subject_room - 1, place = mixed((uint64_t)subject) & mask;
    while (self->subject_used[place] && self->subject[place] != subject)
        place = (place + 1) & mask;
    return place;
}

static int reserve_subject(Ranked *self)
{
    /* There are as many subjects as entries; half of the places stay free. */
    if (2 * ((size_t)(self->next - self->first) + 1) <= self->subject_room)
        return 1;
    size_t room = self->subject_room ? 2 * self->subject_room : 128;
    int64_t *subject = calloc(room, sizeof(int64_t));
    unsigned char *used = calloc(room, 1);
    if (subject == NULL || used == NULL) {
        free(subject);
        free(used);
        return 0;
    }
    free(self->subject);
    free(self->subject_used);
    self->subject = subject;
    self->subject_used = used;
    self->subject_room = room;
    for (int64_t n = self->first; n < self->next; n++) {
        int64_t each = entry_of(self, n)[1];
        size_t place = place_of_subject(self, each);
        subject[place] = each;
        used[place] = 1;
    }
    return 1;
}

static void drop_subject(Ranked *self, int64_t subject)
{
    size_t mask = self->subject_room - 1, gap = place_of_subject(self, subject), place = gap;
    if (!self->subject_used[gap])
        return;
    for (;;) {
        place = (place + 1) & mask;
        if (!self->subject_used[place])
            break;
        size_t home = mixed((uint64_t)self->subject[place]) & mask;
        if (((place - home) & mask) >= ((place - gap) & mask)) {
            self->subject[gap] = self->subject[place];
            gap = place;
        }
    }
    self->subject_used[gap] = 0;
}

/* ------------------------------------------------------------------------------- tables */

static const int64_t *cells_of(const Table *table, int64_t slot)
{
    return table->cell + slot * table->keys;
}

static size_t place_of(const Table *table, const int64_t *cells)
{
    size_t mask = table->room - 1, place = hash_of(cells, table->keys) & mask;
    size_t bytes = (size_t)table->keys * sizeof(int64_t);
    while (table->table[place]) {
        if (memcmp(cells_of(table, table->table[place] - 1), cells, bytes) == 0)
            break;
        place = (place + 1) & mask;
    }
    return place;
}

/* How many slots there will be, so that as many more as that are free. */
static size_t slots_for(const Table *table, size_t more)
{
    if (table->free_count + table->slots - table->slot_count >= more)
        return table->slots;
    return table->slots ? 2 * table->slots : 64;
}

/* Make room for `slots` slots, and `more` than there are now. */
static int reserve_slots(Table *self, size_t slots, size_t more)
{
    if (slots > self->slots) {
        if (!longer(&self->cell, slots, (size_t)self->keys * sizeof(int64_t)) ||
            !longer(&self->held, slots, sizeof(int64_t)) ||
            !longer(&self->free_slot, slots, sizeof(int64_t)))
            return 0;
        self->slots = slots;
    }
    if (2 * (self->count + more) <= self->room)
        return 1;
    size_t room = self->room ? 2 * self->room : 128, before = self->room;
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
        int64_t slot = self->free_count ? self->free_slot[--self->free_count]
                                        : (int64_t)self->slot_count++;
        memcpy(self->cell + slot * self->keys, cells, (size_t)self->keys * sizeof(int64_t));
        self->held[slot] = 0;
        self->table[place] = slot + 1;
        self->count++;
    }
    int64_t slot = self->table[place] - 1;
    self->held[slot]++;
    return slot;
}

static void drop(Table *self, int64_t slot)
{
    size_t mask = self->room - 1, gap = place_of(self, cells_of(self, slot)), place = gap;
    for (;;) {
        place = (place + 1) & mask;
        if (!self->table[place])
            break;
        size_t home = hash_of(cells_of(self, self->table[place] - 1), self->keys) & mask;
        if (((place - home) & mask) >= ((place - gap) & mask)) {
            self->table[gap] = self->table[place];
            gap = place;
        }
    }
    self->table[gap] = 0;
    self->free_slot[self->free_count++] = slot;
    self->count--;
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
    int64_t rest = cell >> TAG_BITS, tag = cell & ((1 << TAG_BITS) - 1);
    if (tag == INTEGER)
        return (__int128)rest * power[MOST_PLACES];
    /* Instants are behind all numbers. */
    if (tag == DATE_TIME)
        return ((__int128)rest + (__int128)power[MOST_PLACES] * 10) * power[MOST_PLACES];
    int64_t scale = rest & ((1 << SCALE_BITS) - 1);
    if (scale > MOST_PLACES)
        scale = MOST_PLACES;
    return (__int128)(rest >> SCALE_BITS) * power[MOST_PLACES - scale];
}

static int64_t *sizes_of(const Ranked *self, int64_t slot)
{
    return self->size + slot * self->branches;
}

static Ordered *ordered_of(const Ranked *self, const Number *number, int64_t slot)
{
    return self->ordered + slot * self->lists + number->of_group;
}

static Total *total_of(const Ranked *self, const Number *number, int64_t slot)
{
    return self->total + slot * self->totals + number->of_group;
}

static int64_t part_of(const Ranked *self, const Number *number, int64_t slot, int part)
{
    if (number->kind == SUM) {
        const Total *total = total_of(self, number, slot);
        if (part == DECIMALS)
            return total->decimals;
        return (int64_t)(part == LOW ? total->sum : total->sum >> 64);
    }
    const Ordered *numbers = ordered_of(self, number, slot);
    if (!numbers->count || part == DECIMALS || (part == HIGH && number->kind != MEDIAN))
        return 0;
    switch (number->kind) {
    case LEAST:
        return numbers->cell[0];
    case MOST:
        return numbers->cell[numbers->count - 1];
    default:
        return numbers->cell[part == LOW ? (numbers->count - 1) / 2 : numbers->count / 2];
    }
}

/* What is shown of a group at a place behind its keys. */
static int64_t shown_of(const Ranked *self, int64_t slot, int behind)
{
    const Place *place = self->place + behind;
    if (place->number == NONE)
        return sizes_of(self, slot)[place->branch];
    return part_of(self, self->branch[place->branch].number + place->number, slot, place->part);
}

/* What the numbers of a group come to, in parts of 10^-18. */
static __int128 number_of(const Ranked *self, const Number *number, int64_t slot)
{
    if (number->kind == SUM)
        return total_of(self, number, slot)->sum;
    __int128 low = value_of(part_of(self, number, slot, LOW));
    if (number->kind != MEDIAN)
        return low;
    return (low + value_of(part_of(self, number, slot, HIGH))) / 2;
}

/* What a group is ordered by, in parts of 10^-18. */
static __int128 amount(const Ranked *self, int64_t slot, const Condition *by)
{
    __int128 found;
    if (by->place < self->keys) {
        found = value_of(cells_of(&self->groups, slot)[by->place]);
    } else {
        const Place *place = self->place + (by->place - self->keys);
        if (place->number == NONE)
            found = (__int128)sizes_of(self, slot)[place->branch] * power[MOST_PLACES];
        else
            found = number_of(self, self->branch[place->branch].number + place->number, slot);
    }
    if (by->over != NONE) {
        int64_t size = shown_of(self, slot, by->over - self->keys);
        found = size ? found / size : 0;
    }
    return by->descending ? -found : found;
}

/* Whether a group comes before (negative) or after another one; never 0 for two. */
static int compared(const Ranked *self, int64_t one, int64_t other)
{
    if (self->lead[one] != self->lead[other])
        return self->lead[one] < self->lead[other] ? -1 : 1;
    for (int n = 1; n < self->conditions; n++) {
        __int128 a = amount(self, one, self->order + n), b = amount(self, other, self->order + n);
        if (a != b)
            return a < b ? -1 : 1;
    }
    for (int n = 0; n < self->ties; n++) {
        int place = self->tie[n];
        int64_t a, b;
        if (place < self->keys) {
            a = cells_of(&self->groups, one)[place];
            b = cells_of(&self->groups, other)[place];
        } else {
            a = shown_of(self, one, place - self->keys);
            b = shown_of(self, other, place - self->keys);
        }
        if (a != b)
            return a < b ? -1 : 1;
    }
    return 0;
}

/* Whether a group has as many rows in each branch as it must. */
static int is_whole(const Ranked *self, int64_t slot)
{
    const int64_t *sizes = sizes_of(self, slot);
    for (int n = 0; n < self->branches; n++)
        if (sizes[n] < self->branch[n].least || sizes[n] > self->branch[n].most)
            return 0;
    return 1;
}

/* Put a slot among the best; returns where. */
static Py_ssize_t put(Ranked *self, int64_t slot)
{
    Py_ssize_t low = 0, high = self->best_count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (compared(self, slot, self->best[middle]) < 0)
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

static void cut(Ranked *self, Py_ssize_t count)
{
    while (self->best_count > count)
        self->is_best[self->best[--self->best_count]] = 0;
}

static void choose_anew(Ranked *self)
{
    Py_ssize_t count = 0;
    cut(self, 0);
    for (size_t n = 0; n < self->groups.room; n++) {
        int64_t slot = self->groups.table[n] - 1;
        if (slot < 0 || !is_whole(self, slot))
            continue;
        count++;
        if (self->best_count == self->reserve) {
            if (compared(self, slot, self->best[self->best_count - 1]) > 0)
                continue;
            cut(self, self->reserve - 1);
        }
        put(self, slot);
    }
    self->all_best = self->best_count == count;
}

static void drop_group(Ranked *self, int64_t slot)
{
    drop(&self->groups, slot);
    for (int n = 0; n < self->lists; n++) {
        Ordered *numbers = self->ordered + slot * self->lists + n;
        free(numbers->cell);
        memset(numbers, 0, sizeof(Ordered));
    }
}

/* Put what was touched where it belongs now; whether that may matter to what is shown. */
static int placed(Ranked *self)
{
    int matters = 0;
    for (size_t n = 0; n < self->touched_count; n++) {
        int64_t slot = self->touched[n];
        self->is_touched[slot] = 0;
        if (!self->is_best[slot])
            continue;
        Py_ssize_t place = 0;
        while (self->best[place] != slot)
            place++;
        self->best_count--;
        memmove(self->best + place, self->best + place + 1,
                (size_t)(self->best_count - place) * sizeof(int64_t));
        self->is_best[slot] = 0;
        matters |= place < self->wanted;
    }
    /* What decides first, of all of them, before any is compared. */
    for (size_t n = 0; n < self->touched_count; n++)
        if (is_whole(self, self->touched[n]))
            self->lead[self->touched[n]] = amount(self, self->touched[n], self->order);
    for (size_t n = 0; n < self->touched_count; n++) {
        int64_t slot = self->touched[n];
        if (!self->groups.held[slot]) {
            drop_group(self, slot);
            continue;
        }
        if (!is_whole(self, slot))
            continue;
        if (!self->all_best && (!self->best_count ||
                                compared(self, slot, self->best[self->best_count - 1]) > 0))
            continue;
        matters |= put(self, slot) < self->wanted;
    }
    self->touched_count = 0;
    if (self->best_count > 2 * self->reserve) {
        cut(self, self->reserve);
        self->all_best = 0;
    } else if (self->best_count < self->wanted && !self->all_best) {
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

/* The first number that is not before a cell. */
static size_t place_of_number(const Ordered *numbers, int64_t cell)
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
    return low;
}

/* One number more or less of those that are kept in their order. */
static void change_ordered(Number *number, Ordered *numbers, int64_t cell, int sign)
{
    if (numbers->cell == NULL) {
        numbers->cell = number->spare;
        numbers->room = FEW;
        number->spare = NULL;
    }
    size_t place = place_of_number(numbers, cell);
    int64_t *there = numbers->cell + place;
    if (sign > 0) {
        memmove(there + 1, there, (numbers->count - place) * sizeof(int64_t));
        *there = cell;
        numbers->count++;
    } else {
        numbers->count--;
        memmove(there, there + 1, (numbers->count - place) * sizeof(int64_t));
    }
}

/* One more or one less row of a group. */
static void count(Ranked *self, Branch *branch, const int64_t *entry, int sign)
{
    int64_t slot = entry[branch->group];
    sizes_of(self, slot)[branch - self->branch] += sign;
    touch(self, slot);
    for (int n = 0; n < branch->numbers; n++) {
        Number *number = branch->number + n;
        int64_t cell = entry[number->cell];
        if (number->kind != SUM) {
            change_ordered(number, ordered_of(self, number, slot), cell, sign);
            continue;
        }
        Total *total = total_of(self, number, slot);
        /* Who gives the numbers sees that it cannot be too much; if it is, the rest is right. */
        unsigned __int128 value = (unsigned __int128)value_of(cell);
        total->sum = (__int128)((unsigned __int128)total->sum + (sign > 0 ? value : -value));
        total->decimals += (cell & ((1 << TAG_BITS) - 1)) == INTEGER ? 0 : sign;
    }
}

static int64_t group_of(Ranked *self, const int64_t *cells)
{
    int is_new;
    int64_t slot = hold(&self->groups, cells, &is_new);
    if (is_new) {
        memset(sizes_of(self, slot), 0, (size_t)self->branches * sizeof(int64_t));
        memset(self->total + slot * self->totals, 0, (size_t)self->totals * sizeof(Total));
        self->is_touched[slot] = self->is_best[slot] = 0;
    }
    return slot;
}

static int reserve_groups(Ranked *self)
{
    size_t more = (size_t)self->branches, slots = slots_for(&self->groups, more);
    size_t before = self->groups.slots, lists = (size_t)self->lists;
    size_t totals = (size_t)self->totals;
    if (slots > before) {
        /* Each may stay longer where another fails: `groups.slots` is what all of them have. */
        if (!longer(&self->size, slots * more, sizeof(int64_t)) ||
            !longer(&self->ordered, slots * lists, sizeof(Ordered)) ||
            !longer(&self->total, slots * totals, sizeof(Total)) ||
            !longer(&self->lead, slots, sizeof(__int128)) ||
            !longer(&self->is_touched, slots, 1) || !longer(&self->is_best, slots, 1) ||
            !longer(&self->touched, slots, sizeof(int64_t)) ||
            !longer(&self->best, slots, sizeof(int64_t)))
            return 0;
        memset(self->ordered + before * lists, 0, (slots - before) * lists * sizeof(Ordered));
    }
    return reserve_slots(&self->groups, slots, more);
}

/* Room for one more number of a group, be it there or not. */
static int reserve_number(Ranked *self, Number *number, const int64_t *cells)
{
    /* For a list that is new when the row comes: there is one at most. */
    if (number->spare == NULL) {
        number->spare = malloc(FEW * sizeof(int64_t));
        if (number->spare == NULL)
            return 0;
    }
    int64_t slot = self->groups.table[place_of(&self->groups, cells)] - 1;
    if (slot < 0)
        return 1;
    Ordered *numbers = ordered_of(self, number, slot);
    if (numbers->count < numbers->room)
        return 1;
    size_t room = numbers->room ? 2 * numbers->room : FEW;
    if (!longer(&numbers->cell, room, sizeof(int64_t)))
        return 0;
    numbers->room = room;
    return 1;
}

/* -------------------------------------------------------------------------------- gates */

/* How many rows of a partner's left side count, after `most` became another one. */
static void look_again(Ranked *self, Branch *branch, const Partner *partner)
{
    for (int64_t number = partner->left_first; number != NONE;) {
        int64_t *entry = entry_of(self, number), *gate = entry + branch->gate;
        int passes = (partner->most > gate[MINE]) != branch->negated;
        if (passes != gate[PASSES]) {
            gate[PASSES] = passes;
            count(self, branch, entry, passes ? 1 : -1);
        }
        number = gate[NEXT_LEFT];
    }
}

static void release(Branch *branch, int64_t slot)
{
    if (!--branch->partners.held[slot])
        drop(&branch->partners, slot);
}

static int64_t partner_of(Branch *branch, int64_t key)
{
    int is_new;
    int64_t slot = hold(&branch->partners, &key, &is_new);
    if (is_new)
        branch->partner[slot] = (Partner){NONE, NONE, NONE, NONE, INT64_MIN};
    return slot;
}

static int reserve_partners(Branch *branch)
{
    size_t slots = slots_for(&branch->partners, 2);
    if (slots > branch->partners.slots && !longer(&branch->partner, slots, sizeof(Partner)))
        return 0;
    return reserve_slots(&branch->partners, slots, 2);
}

static void enter_gate(Ranked *self, Branch *branch, int64_t number, const Py_buffer *column,
                       Py_ssize_t row)
{
    int64_t *entry = entry_of(self, number), *gate = entry + branch->gate;
    gate[NEXT_LEFT] = gate[NEXT_RIGHT] = gate[LEFT] = NONE;
    gate[PASSES] = 0;
    gate[MINE] = ((const int64_t *)column[2].buf)[row];
    gate[THEIRS] = ((const int64_t *)column[3].buf)[row];
    gate[RIGHT] = partner_of(branch, ((const int64_t *)column[1].buf)[row]);
    Partner *right = branch->partner + gate[RIGHT];
    if (right->right_last == NONE)
        right->right_first = number;
    else
        entry_of(self, right->right_last)[branch->gate + NEXT_RIGHT] = number;
    right->right_last = number;
    if (gate[THEIRS] > right->most) {
        right->most = gate[THEIRS];
        look_again(self, branch, right);
    }
    if (entry[branch->group] == NONE)
        return;
    gate[LEFT] = partner_of(branch, ((const int64_t *)column[0].buf)[row]);
    Partner *left = branch->partner + gate[LEFT];
    if (left->left_last == NONE)
        left->left_first = number;
    else
        entry_of(self, left->left_last)[branch->gate + NEXT_LEFT] = number;
    left->left_last = number;
    gate[PASSES] = (left->most > gate[MINE]) != branch->negated;
    if (gate[PASSES])
        count(self, branch, entry, 1);
}

/* A row is too old for a branch. */
static void leave(Ranked *self, Branch *branch, int64_t number)
{
    const int64_t *entry = entry_of(self, number), *gate = entry + branch->gate;
    int64_t slot = entry[branch->group];
    if (slot == NONE)
        return;
    if (!branch->gated || gate[PASSES])
        count(self, branch, entry, -1);
    if (!--self->groups.held[slot])
        touch(self, slot);
    if (!branch->gated)
        return;
    Partner *left = branch->partner + gate[LEFT];
    left->left_first = gate[NEXT_LEFT];
    if (left->left_first == NONE)
        left->left_last = NONE;
    release(branch, gate[LEFT]);
}

/* A row is too old for the right side of a gate. */
static void leave_gate(Ranked *self, Branch *branch, int64_t number)
{
    const int64_t *gate = entry_of(self, number) + branch->gate;
    Partner *right = branch->partner + gate[RIGHT];
    right->right_first = gate[NEXT_RIGHT];
    if (right->right_first == NONE)
        right->right_last = NONE;
    if (gate[THEIRS] == right->most) {
        int64_t most = INT64_MIN;
        for (int64_t n = right->right_first; n != NONE && most < right->most;) {
            const int64_t *other = entry_of(self, n) + branch->gate;
            most = other[THEIRS] > most ? other[THEIRS] : most;
            n = other[NEXT_RIGHT];
        }
        if (most != right->most) {
            right->most = most;
            look_again(self, branch, right);
        }
    }
    release(branch, gate[RIGHT]);
}

/* --------------------------------------------------------------------------------- rows */

static Py_ssize_t shown_count(const Ranked *self)
{
    Py_ssize_t last = self->best_count < self->wanted ? self->best_count : self->wanted;
    return last > self->offset ? last - self->offset : 0;
}

/* Whether the entry `*number` is there and older than an instant minus a width. */
static int is_gone(const Ranked *self, int64_t number, int64_t at, int64_t width)
{
    int64_t first;
    if (__builtin_sub_overflow(at, width, &first))
        first = INT64_MIN;
    return number < self->next && entry_of(self, number)[0] < first;
}

static void write_row(const Ranked *self, int64_t slot, int64_t *row)
{
    memcpy(row, cells_of(&self->groups, slot), (size_t)self->keys * sizeof(int64_t));
    for (int n = 0; n < self->row_width - self->keys; n++)
        row[self->keys + n] = shown_of(self, slot, n);
}

static int reserve_row(Ranked *self, Py_ssize_t row, int64_t *cells)
{
    if (!reserve_log(self) || !reserve_subject(self) || !reserve_groups(self))
        return 0;
    for (int n = 0; n < self->branches; n++) {
        Branch *branch = self->branch + n;
        if (branch->gated && !reserve_partners(branch))
            return 0;
        if (!branch->numbers)
            continue;
        for (int key = 0; key < self->keys; key++)
            cells[key] = ((const int64_t *)self->column[branch->column + key].buf)[row];
        for (int each = 0; each < branch->numbers; each++)
            if (branch->number[each].kind != SUM &&
                !reserve_number(self, branch->number + each, cells))
                return 0;
    }
    return 1;
}

/* What is too old at an instant goes. */
static void let_go(Ranked *self, int64_t at)
{
    for (int n = 0; n < self->branches; n++) {
        Branch *branch = self->branch + n;
        while (is_gone(self, branch->gone, at, branch->width))
            leave(self, branch, branch->gone++);
        while (branch->gated && is_gone(self, branch->other_gone, at, branch->other_width))
            leave_gate(self, branch, branch->other_gone++);
    }
    while (is_gone(self, self->first, at, self->width))
        drop_subject(self, entry_of(self, self->first++)[1]);
}

/* The first instant at which the entry `number` has gone, or `soonest` where that is earlier. */
static int64_t sooner(const Ranked *self, int64_t number, int64_t width, int64_t soonest)
{
    int64_t last;
    if (number >= self->next || __builtin_add_overflow(entry_of(self, number)[0], width, &last))
        return soonest;
    return last < soonest ? last + 1 : soonest;
}

/* Let time pass until a row comes, or what is shown may have changed; whether it has. */
static int pass(Ranked *self, int64_t until)
{
    for (;;) {
        int64_t at = until;
        for (int n = 0; n < self->branches; n++) {
            const Branch *branch = self->branch + n;
            at = sooner(self, branch->gone, branch->width, at);
            if (branch->gated)
                at = sooner(self, branch->other_gone, branch->other_width, at);
        }
        if (at >= until)
            return 0;
        let_go(self, at);
        if (self->touched_count && placed(self)) {
            self->passed = at;
            return 1;
        }
    }
}

/* Take a row; whether it may have changed what is shown. */
static int take(Ranked *self, Py_ssize_t row, int64_t *cells)
{
    int64_t at = ((const int64_t *)self->column[0].buf)[row];
    int64_t subject = ((const int64_t *)self->column[1].buf)[row];
    int matters = 0;
    let_go(self, at);
    if (self->apart && self->touched_count && placed(self)) {
        matters = 1;
        self->before_count = shown_count(self);
        for (Py_ssize_t n = 0; n < self->before_count; n++)
            write_row(self, self->best[self->offset + n], self->before + n * self->row_width);
    }
    int64_t number = self->next++, *entry = entry_of(self, number);
    entry[0] = at;
    entry[1] = subject;
    size_t place = place_of_subject(self, subject);
    self->subject[place] = subject;
    self->subject_used[place] = 1;
    for (int n = 0; n < self->branches; n++) {
        Branch *branch = self->branch + n;
        const Py_buffer *column = self->column + branch->column;
        entry[branch->group] = NONE;
        if (((const int64_t *)column[self->keys].buf)[row]) {
            for (int key = 0; key < self->keys; key++)
                cells[key] = ((const int64_t *)column[key].buf)[row];
            entry[branch->group] = group_of(self, cells);
            for (int each = 0; each < branch->numbers; each++) {
                const Number *number = branch->number + each;
                entry[number->cell] = ((const int64_t *)self->column[number->column].buf)[row];
            }
            if (!branch->gated)
                count(self, branch, entry, 1);
        }
        if (branch->gated)
            enter_gate(self, branch, number, self->column + branch->gate_column, row);
    }
    if (self->touched_count)
        matters |= placed(self);
    return matters;
}

static Py_ssize_t taken(Ranked *self, Py_ssize_t start, Py_ssize_t stop, int quiet)
{
    const int64_t *times = self->column[0].buf, *subjects = self->column[1].buf;
    int64_t cells[MOST_KEYS];
    for (Py_ssize_t row = start; row < stop; row++) {
        if (!reserve_row(self, row, cells)) {
            PyErr_NoMemory();
            return -1;
        }
        if (self->subject_used[place_of_subject(self, subjects[row])]) {
            self->refused = 1;
            return row;
        }
        self->before_count = -1;
        if (self->ticks && !quiet && pass(self, times[row])) {
            self->changed = 1;
            return row;
        }
        if (take(self, row, cells) && !quiet) {
            self->changed = 1;
            return row + 1;
        }
    }
    self->before_count = -1;
    return stop;
}

/* ------------------------------------------------------------------------- for Python */

static int is_column(const Py_buffer *column)
{
    const char *format = column->format ? column->format : "B";
    return column->ndim == 1 && column->itemsize == (Py_ssize_t)sizeof(int64_t) &&
           (strcmp(format, "l") == 0 || strcmp(format, "q") == 0);
}

static PyObject *ranked_run(PyObject *object, PyObject *arguments)
{
    Ranked *self = (Ranked *)object;
    PyObject *batch;
    Py_ssize_t start, stop, done = -1;
    int quiet = 0, opened = 0;
    if (!PyArg_ParseTuple(arguments, "O!nn|p", &PyTuple_Type, &batch, &start, &stop, &quiet))
        return NULL;
    if (PyTuple_Size(batch) != self->columns) {
        PyErr_SetString(PyExc_ValueError, "a batch has another number of columns");
        return NULL;
    }
    Py_buffer *column = self->column;
    for (; opened < self->columns; opened++) {
        PyObject *each = PyTuple_GetItem(batch, opened);
        if (PyObject_GetBuffer(each, &column[opened], PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0)
            goto finish;
        if (!is_column(&column[opened]) || column[opened].len != column[0].len) {
            opened++;
            PyErr_SetString(PyExc_ValueError, "columns are integers of 64 bits, of one length");
            goto finish;
        }
    }
    if (start < 0 || stop < start || stop > column[0].len / (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "there is no such row");
        goto finish;
    }
    self->changed = self->refused = 0;
    self->passed = WITH_ROW;
    self->before_count = -1;
    done = taken(self, start, stop, quiet);
finish:
    while (opened)
        PyBuffer_Release(&column[--opened]);
    return done < 0 ? NULL : PyLong_FromSsize_t(done);
}

static PyObject *ranked_batch(PyObject *object, PyObject *arguments)
{
    PyObject *columns;
    (void)object;
    return PyArg_ParseTuple(arguments, "O", &columns) ? PySequence_Tuple(columns) : NULL;
}

static PyObject *row_of(const Ranked *self, const int64_t *cells)
{
    PyObject *row = PyTuple_New(self->row_width);
    for (int n = 0; row != NULL && n < self->row_width; n++) {
        PyObject *value = PyLong_FromLongLong(cells[n]);
        if (value == NULL) {
            Py_DECREF(row);
            return NULL;
        }
        PyTuple_SetItem(row, n, value);
    }
    return row;
}

static PyObject *ranked_shown(PyObject *object, PyObject *nothing)
{
    Ranked *self = (Ranked *)object;
    int64_t cells[MOST_KEYS + (1 + PARTS * MOST_NUMBERS) * MOST_BRANCHES];
    (void)nothing;
    PyObject *rows = PyList_New(0);
    for (Py_ssize_t n = 0; rows != NULL && n < shown_count(self); n++) {
        write_row(self, self->best[self->offset + n], cells);
        PyObject *row = row_of(self, cells);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static PyObject *ranked_before(PyObject *object, PyObject *nothing)
{
    Ranked *self = (Ranked *)object;
    (void)nothing;
    if (self->before_count < 0)
        Py_RETURN_NONE;
    PyObject *rows = PyList_New(0);
    for (Py_ssize_t n = 0; rows != NULL && n < self->before_count; n++) {
        PyObject *row = row_of(self, self->before + n * self->row_width);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static Py_ssize_t ranked_length(PyObject *object)
{
    return (Py_ssize_t)(((Ranked *)object)->next - ((Ranked *)object)->first);
}

static PyObject *ranked_groups(PyObject *object, void *nothing)
{
    (void)nothing;
    return PyLong_FromSize_t(((Ranked *)object)->groups.count);
}

static size_t bytes_of_table(const Table *table)
{
    return (table->slots * (size_t)(table->keys + 2) + table->room) * sizeof(int64_t);
}

/* What it takes: the arrays are not Python's. */
static PyObject *ranked_sizeof(PyObject *object, PyObject *nothing)
{
    const Ranked *self = (Ranked *)object;
    size_t branches = (size_t)self->branches, lists = (size_t)self->lists, bytes = sizeof(Ranked);
    size_t totals = (size_t)self->totals;
    (void)nothing;
    bytes += (size_t)(self->conditions + 1) * sizeof(Condition);
    bytes += (size_t)(self->ties + 1) * sizeof(int);
    bytes += MOST_BRANCHES * sizeof(Branch) + (size_t)self->columns * sizeof(Py_buffer);
    bytes += (1 + PARTS * MOST_NUMBERS) * MOST_BRANCHES * sizeof(Place);
    bytes += self->log_room * (size_t)self->stride * sizeof(int64_t);
    bytes += self->subject_room * (sizeof(int64_t) + 1);
    bytes += bytes_of_table(&self->groups);
    bytes += self->groups.slots * ((branches + 2) * sizeof(int64_t) + lists * sizeof(Ordered) +
                                   totals * sizeof(Total) + sizeof(__int128) + 2);
    for (size_t n = 0; n < self->groups.slots * lists; n++)
        bytes += self->ordered[n].room * sizeof(int64_t);
    for (size_t n = 0; n < branches; n++) {
        const Branch *branch = self->branch + n;
        bytes += bytes_of_table(&branch->partners);
        bytes += branch->partners.slots * sizeof(Partner);
        for (int each = 0; each < branch->numbers; each++)
            bytes += branch->number[each].spare == NULL ? 0 : FEW * sizeof(int64_t);
    }
    if (self->apart)
        bytes += (size_t)(self->wanted - self->offset) * (size_t)self->row_width * sizeof(int64_t);
    return PyLong_FromSize_t(bytes);
}

static int wrong(void)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a ranking that makes no sense");
    return 0;
}

/* Whether groups can be ordered by what is at a place of a row, or that be divided by it. */
static int is_number(const Ranked *self, int place, int divides)
{
    if (place < self->keys)
        return place >= 0 && !divides;
    if (place >= self->row_width)
        return 0;
    const Place *behind = self->place + (place - self->keys);
    return behind->number == NONE || (behind->part == LOW && !divides);
}

/* The kinds of the numbers of a branch; whether they are right. */
static int read_numbers(Ranked *self, Branch *branch, PyObject *kinds)
{
    if (PyTuple_Size(kinds) > MOST_NUMBERS)
        return wrong();
    for (; branch->numbers < PyTuple_Size(kinds); branch->numbers++) {
        Number *number = branch->number + branch->numbers;
        long kind = PyLong_AsLong(PyTuple_GetItem(kinds, branch->numbers));
        /* Through a gate numbers come at any time, and there is no room for them in advance. */
        if (PyErr_Occurred() || kind < 0 || kind >= KINDS || (kind != SUM && branch->gated))
            return wrong();
        number->kind = (int)kind;
        number->of_group = kind == SUM ? self->totals++ : self->lists++;
        number->cell = self->stride++;
        number->column = self->columns++;
    }
    return 1;
}

static int read_branches(Ranked *self, PyObject *branches)
{
    self->stride = 2;
    self->columns = 2;
    self->row_width = self->keys;
    self->branch = calloc(MOST_BRANCHES, sizeof(Branch));
    self->place = calloc((1 + PARTS * MOST_NUMBERS) * MOST_BRANCHES, sizeof(Place));
    if (self->branch == NULL || self->place == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (; self->branches < PyTuple_Size(branches); self->branches++) {
        Branch *branch = self->branch + self->branches;
        PyObject *each = PyTuple_GetItem(branches, self->branches), *kinds;
        long long width, least, most, other;
        if (!PyTuple_Check(each)) {
            PyErr_SetString(PyExc_TypeError, "a branch is a tuple");
            return 0;
        }
        if (!PyArg_ParseTuple(each, "LLLO!Lp", &width, &least, &most, &PyTuple_Type, &kinds,
                              &other, &branch->negated))
            return 0;
        branch->gated = other >= 0;
        if (width < 0 || least < 1 || other < -1)
            return wrong();
        branch->width = width;
        branch->other_width = other;
        branch->least = least;
        branch->most = most;
        branch->partners.keys = 1;
        branch->group = self->stride++;
        branch->column = self->columns;
        self->columns += self->keys + 1;
        if (!read_numbers(self, branch, kinds))
            return 0;
        branch->gate = self->stride;
        self->stride += branch->gated ? GATE_FIELDS : 0;
        branch->gate_column = self->columns;
        self->columns += branch->gated ? 4 : 0;
        Place *place = self->place + (self->row_width - self->keys);
        *place++ = (Place){self->branches, NONE, 0};
        for (int n = 0; n < PARTS * branch->numbers; n++)
            *place++ = (Place){self->branches, n / PARTS, n % PARTS};
        self->row_width += 1 + PARTS * branch->numbers;
        self->width = width > self->width ? width : self->width;
        self->width = other > self->width ? other : self->width;
    }
    self->column = calloc((size_t)self->columns, sizeof(Py_buffer));
    if (self->column == NULL)
        PyErr_NoMemory();
    return self->column != NULL;
}

/* The conditions of an order and the columns of its ties; whether they are right. */
static int read_order(Ranked *self, PyObject *order, PyObject *ties)
{
    self->conditions = (int)PyTuple_Size(order);
    self->ties = (int)PyTuple_Size(ties);
    self->order = calloc((size_t)self->conditions + 1, sizeof(Condition));
    self->tie = calloc((size_t)self->ties + 1, sizeof(int));
    if (self->order == NULL || self->tie == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (int n = 0; n < self->conditions; n++) {
        Condition *by = self->order + n;
        PyObject *each = PyTuple_GetItem(order, n);
        if (!PyTuple_Check(each)) {
            PyErr_SetString(PyExc_TypeError, "a condition is a tuple");
            return 0;
        }
        if (!PyArg_ParseTuple(each, "iip", &by->place, &by->over, &by->descending))
            return 0;
        if (!is_number(self, by->place, 0) || (by->over != NONE && !is_number(self, by->over, 1)))
            return wrong();
    }
    for (int n = 0; n < self->ties; n++) {
        long place = PyLong_AsLong(PyTuple_GetItem(ties, n));
        if (PyErr_Occurred() || place < 0 || place >= self->row_width)
            return wrong();
        self->tie[n] = (int)place;
    }
    return 1;
}

static void ranked_free(PyObject *object)
{
    Ranked *self = (Ranked *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (size_t n = 0; n < self->groups.slots * (size_t)self->lists; n++)
        free(self->ordered[n].cell);
    for (int n = 0; n < self->branches; n++) {
        free_table(&self->branch[n].partners);
        free(self->branch[n].partner);
        for (int each = 0; each < self->branch[n].numbers; each++)
            free(self->branch[n].number[each].spare);
    }
    free_table(&self->groups);
    void *arrays[] = {
        self->order, self->tie, self->branch, self->place, self->column, self->log,
        self->subject, self->subject_used, self->size, self->ordered, self->total, self->lead,
        self->is_touched, self->is_best, self->touched, self->best, self->before,
    };
    for (size_t n = 0; n < sizeof(arrays) / sizeof(arrays[0]); n++)
        free(arrays[n]);
    freefunc release_it = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_it(object);
    Py_DECREF(type);
}

static int read_ranking(Ranked *self, PyObject *ranking)
{
    PyObject *branches, *order, *ties;
    /* As `Ranking` has them. */
    Py_ssize_t keys = 0, offset = 0, wanted = 0;
    int apart = 0, ticks = 0;
    if (!PyArg_ParseTuple(ranking, "nO!O!O!nnpp", &keys, &PyTuple_Type, &branches, &PyTuple_Type,
                          &order, &PyTuple_Type, &ties, &offset, &wanted, &apart, &ticks))
        return 0;
    if (keys < 1 || keys > MOST_KEYS || PyTuple_Size(order) < 1 || PyTuple_Size(order) > 1000 ||
        PyTuple_Size(ties) > 1000 || PyTuple_Size(branches) < 1 ||
        PyTuple_Size(branches) > MOST_BRANCHES || offset < 0 || wanted <= offset ||
        wanted > PY_SSIZE_T_MAX / 1024)
        return wrong();
    self->keys = self->groups.keys = (int)keys;
    self->offset = offset;
    self->wanted = wanted;
    self->reserve = 3 * wanted < 32 ? 32 : 3 * wanted;
    self->apart = (char)apart;
    self->ticks = (char)ticks;
    self->passed = WITH_ROW;
    self->all_best = 1;
    self->before_count = -1;
    if (!read_branches(self, branches) || !read_order(self, order, ties))
        return 0;
    if (apart) {
        size_t each = (size_t)self->row_width * sizeof(int64_t);
        self->before = calloc((size_t)(wanted - offset), each);
        if (self->before == NULL) {
            PyErr_NoMemory();
            return 0;
        }
    }
    return 1;
}

static PyObject *ranked_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *ranking;
    if (named != NULL && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "a ranking, without a name");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!", &PyTuple_Type, &ranking))
        return NULL;
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Ranked *self = (Ranked *)make(type, 0);
    if (self != NULL && !read_ranking(self, ranking))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"batch", ranked_batch, METH_VARARGS, "Rows as `run` takes them."},
    {"run", ranked_run, METH_VARARGS, "Take rows until one may have changed what is shown."},
    {"shown", ranked_shown, METH_NOARGS, "The keys and sizes of the groups that are shown."},
    {"before", ranked_before, METH_NOARGS, "What was shown before the last row came."},
    {"__sizeof__", ranked_sizeof, METH_NOARGS, "Bytes, with all that it keeps."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"changed", T_BOOL, offsetof(Ranked, changed), READONLY, "Whether the last row may matter."},
    {"refused", T_BOOL, offsetof(Ranked, refused), READONLY, "Whether a row was not taken."},
    {"passed", T_LONGLONG, offsetof(Ranked, passed), READONLY, "When it changed without a row."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"groups", ranked_groups, NULL, "How many groups there are.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The window, its groups and the best of them."},
    {Py_tp_new, ranked_new},
    {Py_tp_dealloc, ranked_free},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {Py_sq_length, ranked_length},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tpf_client.dataflow.state._ranked_groups.RankedGroups",
    .basicsize = sizeof(Ranked),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int fill(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "RankedGroups", type);
    Py_DECREF(type);
#ifdef SOURCE
    /* Of this file, as it was compiled: who imports it sees whether it still is the one. */
    if (failed == 0)
        failed = PyModule_AddIntConstant(module, "SOURCE", SOURCE);
#endif
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, fill},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_ranked_groups",
    .m_doc = "Ranked groups in C.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__ranked_groups(void)
{
    return PyModuleDef_Init(&definition);
}
