/* Ranked groups in C: what ranked_groups.py says, row for row.

   The window is a ring of entries (time, subject, group). Its subjects are in a set, its groups in
   a table; both are open addressing with linear probing, and what is deleted leaves no gap. Groups
   live in slots, whose numbers are never those of another group meanwhile. The best groups are an
   array of slots in their order. A row makes no Python object; no code of others runs meanwhile.

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
#define SCALE_BITS 5
#define MOST_PLACES 18
#define NO_GROUP (-1)

typedef struct {
    int64_t time, subject, group;
} Entry;

typedef struct {
    int place, descending;
} Condition;

typedef struct {
    PyObject_HEAD
    int keys, conditions, ties;
    Condition *order;
    int *tie;
    Py_ssize_t offset, wanted, reserve;
    int64_t width;
    char apart, changed, refused;
    /* The window: `log_room` is a power of two. */
    Entry *log;
    size_t log_room, log_first, log_count;
    /* Its subjects; `subject_used` says which places are taken. */
    int64_t *subject;
    unsigned char *subject_used;
    size_t subject_room;
    /* Slots of groups, and those that are free. */
    int64_t *cell, *size, *free_slot;
    unsigned char *is_touched, *is_best;
    size_t slots, slot_count, free_count, group_count;
    /* From keys to slots: the number of a slot and one, or 0. */
    int64_t *table;
    size_t table_room;
    int64_t *touched, *best;
    size_t touched_count;
    Py_ssize_t best_count;
    int all_best;
    /* Cells and sizes of what was shown before the last row came. */
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

/* ------------------------------------------------------------------------------- memory */

/* Make an array longer; whether that could be done. */
static int longer(void *array, size_t count, size_t each)
{
    void **place = array;
    if (each && count > (size_t)PY_SSIZE_T_MAX / each)
        return 0;
    void *found = realloc(*place, count * each);
    if (found == NULL)
        return 0;
    *place = found;
    return 1;
}

static int reserve_log(Ranked *self)
{
    if (self->log_count < self->log_room)
        return 1;
    size_t room = self->log_room ? 2 * self->log_room : 64;
    if (room > (size_t)PY_SSIZE_T_MAX / sizeof(Entry))
        return 0;
    Entry *log = malloc(room * sizeof(Entry));
    if (log == NULL)
        return 0;
    for (size_t n = 0; n < self->log_count; n++)
        log[n] = self->log[(self->log_first + n) & (self->log_room - 1)];
    free(self->log);
    self->log = log;
    self->log_room = room;
    self->log_first = 0;
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
    if (2 * (self->log_count + 1) <= self->subject_room)
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
    for (size_t n = 0; n < self->log_count; n++) {
        int64_t each = self->log[(self->log_first + n) & (self->log_room - 1)].subject;
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

static size_t place_of_group(const Ranked *self, const int64_t *cells)
{
    size_t mask = self->table_room - 1, place = hash_of(cells, self->keys) & mask;
    size_t bytes = (size_t)self->keys * sizeof(int64_t);
    while (self->table[place]) {
        const int64_t *other = self->cell + (self->table[place] - 1) * self->keys;
        if (memcmp(other, cells, bytes) == 0)
            break;
        place = (place + 1) & mask;
    }
    return place;
}

static int reserve_group(Ranked *self)
{
    if (!self->free_count && self->slot_count == self->slots) {
        size_t slots = self->slots ? 2 * self->slots : 64;
        /* Each may stay longer where another fails: `slots` is what all of them have. */
        if (!longer(&self->cell, slots, (size_t)self->keys * sizeof(int64_t)) ||
            !longer(&self->size, slots, sizeof(int64_t)) ||
            !longer(&self->free_slot, slots, sizeof(int64_t)) ||
            !longer(&self->is_touched, slots, 1) || !longer(&self->is_best, slots, 1) ||
            !longer(&self->touched, slots, sizeof(int64_t)) ||
            !longer(&self->best, slots, sizeof(int64_t)))
            return 0;
        self->slots = slots;
    }
    if (2 * (self->group_count + 1) <= self->table_room)
        return 1;
    size_t room = self->table_room ? 2 * self->table_room : 128;
    int64_t *table = calloc(room, sizeof(int64_t)), *old = self->table;
    size_t before = self->table_room;
    if (table == NULL)
        return 0;
    self->table = table;
    self->table_room = room;
    for (size_t n = 0; n < before; n++)
        if (old[n])
            table[place_of_group(self, self->cell + (old[n] - 1) * self->keys)] = old[n];
    free(old);
    return 1;
}

/* The slot of a group, which is new where there was none. */
static int64_t group_of(Ranked *self, const int64_t *cells)
{
    size_t place = place_of_group(self, cells);
    if (self->table[place])
        return self->table[place] - 1;
    int64_t slot = self->free_count ? self->free_slot[--self->free_count]
                                    : (int64_t)self->slot_count++;
    memcpy(self->cell + slot * self->keys, cells, (size_t)self->keys * sizeof(int64_t));
    self->size[slot] = 0;
    self->is_touched[slot] = self->is_best[slot] = 0;
    self->table[place] = slot + 1;
    self->group_count++;
    return slot;
}

static void drop_group(Ranked *self, int64_t slot)
{
    size_t mask = self->table_room - 1;
    size_t gap = place_of_group(self, self->cell + slot * self->keys), place = gap;
    for (;;) {
        place = (place + 1) & mask;
        if (!self->table[place])
            break;
        const int64_t *cells = self->cell + (self->table[place] - 1) * self->keys;
        size_t home = hash_of(cells, self->keys) & mask;
        if (((place - home) & mask) >= ((place - gap) & mask)) {
            self->table[gap] = self->table[place];
            gap = place;
        }
    }
    self->table[gap] = 0;
    self->free_slot[self->free_count++] = slot;
    self->group_count--;
}

/* -------------------------------------------------------------------------------- order */

static __int128 value_of(int64_t cell)
{
    int64_t rest = cell >> TAG_BITS;
    if ((cell & ((1 << TAG_BITS) - 1)) == INTEGER)
        return (__int128)rest * power[MOST_PLACES];
    int64_t scale = rest & ((1 << SCALE_BITS) - 1);
    if (scale > MOST_PLACES)
        scale = MOST_PLACES;
    return (__int128)(rest >> SCALE_BITS) * power[MOST_PLACES - scale];
}

/* Whether a group comes before (negative) or after another one; never 0 for two. */
static int compared(const Ranked *self, int64_t one, int64_t other)
{
    const int64_t *left = self->cell + one * self->keys, *right = self->cell + other * self->keys;
    for (int n = 0; n < self->conditions; n++) {
        int place = self->order[n].place, found;
        if (place == self->keys) {
            int64_t a = self->size[one], b = self->size[other];
            found = (a > b) - (a < b);
        } else if (left[place] == right[place]) {
            continue;
        } else {
            __int128 a = value_of(left[place]), b = value_of(right[place]);
            found = (a > b) - (a < b);
        }
        if (found)
            return self->order[n].descending ? -found : found;
    }
    for (int n = 0; n < self->ties; n++) {
        int place = self->tie[n];
        int64_t a = place == self->keys ? self->size[one] : left[place];
        int64_t b = place == self->keys ? self->size[other] : right[place];
        if (a != b)
            return a < b ? -1 : 1;
    }
    return 0;
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
    cut(self, 0);
    for (size_t n = 0; n < self->table_room; n++) {
        int64_t slot = self->table[n] - 1;
        if (slot < 0)
            continue;
        if (self->best_count == self->reserve) {
            if (compared(self, slot, self->best[self->best_count - 1]) > 0)
                continue;
            cut(self, self->reserve - 1);
        }
        put(self, slot);
    }
    self->all_best = (size_t)self->best_count == self->group_count;
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
    for (size_t n = 0; n < self->touched_count; n++) {
        int64_t slot = self->touched[n];
        if (!self->size[slot]) {
            drop_group(self, slot);
            continue;
        }
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

/* --------------------------------------------------------------------------------- rows */

static void touch(Ranked *self, int64_t slot)
{
    if (!self->is_touched[slot]) {
        self->is_touched[slot] = 1;
        self->touched[self->touched_count++] = slot;
    }
}

static Py_ssize_t shown_count(const Ranked *self)
{
    Py_ssize_t last = self->best_count < self->wanted ? self->best_count : self->wanted;
    return last > self->offset ? last - self->offset : 0;
}

/* Take a row; whether it may have changed what is shown. */
static int take(Ranked *self, int64_t at, int64_t subject, const int64_t *cells, int counts)
{
    int64_t first;
    int matters = 0;
    if (__builtin_sub_overflow(at, self->width, &first))
        first = INT64_MIN;
    while (self->log_count && self->log[self->log_first].time < first) {
        const Entry *gone = &self->log[self->log_first];
        drop_subject(self, gone->subject);
        if (gone->group != NO_GROUP) {
            self->size[gone->group]--;
            touch(self, gone->group);
        }
        self->log_first = (self->log_first + 1) & (self->log_room - 1);
        self->log_count--;
    }
    if (self->apart && self->touched_count && placed(self)) {
        matters = 1;
        self->before_count = shown_count(self);
        size_t width = (size_t)self->keys + 1;
        for (Py_ssize_t n = 0; n < self->before_count; n++) {
            int64_t slot = self->best[self->offset + n], *row = self->before + (size_t)n * width;
            memcpy(row, self->cell + slot * self->keys, (width - 1) * sizeof(int64_t));
            row[self->keys] = self->size[slot];
        }
    }
    Entry *entry = &self->log[(self->log_first + self->log_count) & (self->log_room - 1)];
    entry->time = at;
    entry->subject = subject;
    entry->group = NO_GROUP;
    size_t place = place_of_subject(self, subject);
    self->subject[place] = subject;
    self->subject_used[place] = 1;
    self->log_count++;
    if (counts) {
        entry->group = group_of(self, cells);
        self->size[entry->group]++;
        touch(self, entry->group);
    }
    if (self->touched_count)
        matters |= placed(self);
    return matters;
}

static Py_ssize_t taken(Ranked *self, Py_buffer *columns, Py_ssize_t start, int quiet)
{
    const int64_t *times = columns[0].buf, *subjects = columns[1].buf;
    const int64_t *wanted = columns[2 + self->keys].buf;
    Py_ssize_t count = columns[0].len / (Py_ssize_t)sizeof(int64_t);
    int64_t cells[64];
    for (Py_ssize_t row = start; row < count; row++) {
        if (!reserve_log(self) || !reserve_subject(self) || !reserve_group(self)) {
            PyErr_NoMemory();
            return -1;
        }
        if (self->subject_used[place_of_subject(self, subjects[row])]) {
            self->refused = 1;
            return row;
        }
        for (int n = 0; n < self->keys; n++)
            cells[n] = ((const int64_t *)columns[2 + n].buf)[row];
        self->before_count = -1;
        if (take(self, times[row], subjects[row], cells, wanted[row] != 0) && !quiet) {
            self->changed = 1;
            return row + 1;
        }
    }
    self->before_count = -1;
    return count;
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
    Py_ssize_t start, done = -1;
    int quiet = 0, columns = self->keys + 3, opened = 0;
    if (!PyArg_ParseTuple(arguments, "O!n|p", &PyTuple_Type, &batch, &start, &quiet))
        return NULL;
    if (PyTuple_Size(batch) != columns) {
        PyErr_SetString(PyExc_ValueError, "a batch has times, subjects, keys and what is wanted");
        return NULL;
    }
    Py_buffer column[64 + 3];
    for (; opened < columns; opened++) {
        PyObject *each = PyTuple_GetItem(batch, opened);
        if (PyObject_GetBuffer(each, &column[opened], PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0)
            goto finish;
        if (!is_column(&column[opened]) || column[opened].len != column[0].len) {
            opened++;
            PyErr_SetString(PyExc_ValueError, "columns are integers of 64 bits, of one length");
            goto finish;
        }
    }
    if (start < 0 || start > column[0].len / (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "there is no such row");
        goto finish;
    }
    self->changed = self->refused = 0;
    self->before_count = -1;
    done = taken(self, column, start, quiet);
finish:
    while (opened)
        PyBuffer_Release(&column[--opened]);
    return done < 0 ? NULL : PyLong_FromSsize_t(done);
}

static PyObject *ranked_batch(PyObject *object, PyObject *arguments)
{
    PyObject *times, *subjects, *keys, *wanted;
    (void)object;
    if (!PyArg_ParseTuple(arguments, "OOOO", &times, &subjects, &keys, &wanted))
        return NULL;
    PyObject *middle = PySequence_Tuple(keys);
    if (middle == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_Size(middle);
    PyObject *batch = PyTuple_New(count + 3);
    if (batch != NULL) {
        Py_INCREF(times);
        PyTuple_SetItem(batch, 0, times);
        Py_INCREF(subjects);
        PyTuple_SetItem(batch, 1, subjects);
        for (Py_ssize_t n = 0; n < count; n++) {
            PyObject *each = PyTuple_GetItem(middle, n);
            Py_INCREF(each);
            PyTuple_SetItem(batch, 2 + n, each);
        }
        Py_INCREF(wanted);
        PyTuple_SetItem(batch, 2 + count, wanted);
    }
    Py_DECREF(middle);
    return batch;
}

/* A tuple of cells and a size. */
static PyObject *row_of(int keys, const int64_t *cells, int64_t size)
{
    PyObject *row = PyTuple_New(keys + 1);
    for (int n = 0; row != NULL && n <= keys; n++) {
        PyObject *value = PyLong_FromLongLong(n < keys ? cells[n] : size);
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
    (void)nothing;
    PyObject *rows = PyList_New(0);
    for (Py_ssize_t n = 0; rows != NULL && n < shown_count(self); n++) {
        int64_t slot = self->best[self->offset + n];
        PyObject *row = row_of(self->keys, self->cell + slot * self->keys, self->size[slot]);
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
        const int64_t *cells = self->before + n * (self->keys + 1);
        PyObject *row = row_of(self->keys, cells, cells[self->keys]);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static Py_ssize_t ranked_length(PyObject *object)
{
    return (Py_ssize_t)((Ranked *)object)->log_count;
}

static PyObject *ranked_groups(PyObject *object, void *nothing)
{
    (void)nothing;
    return PyLong_FromSize_t(((Ranked *)object)->group_count);
}

/* A number of a tuple, at least `least` and at most `most`; -1 with an error. */
static Py_ssize_t number_of(PyObject *tuple, Py_ssize_t place, Py_ssize_t least, Py_ssize_t most)
{
    PyObject *each = PyTuple_GetItem(tuple, place);
    Py_ssize_t found = each == NULL ? -1 : PyLong_AsSsize_t(each);
    if (PyErr_Occurred())
        return -1;
    if (found < least || found > most) {
        PyErr_SetString(PyExc_ValueError, "a ranking that makes no sense");
        return -1;
    }
    return found;
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
        PyObject *pair = PyTuple_GetItem(order, n);
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "a condition is a column and whether it descends");
            return 0;
        }
        Py_ssize_t place = number_of(pair, 0, 0, self->keys);
        int descending = place < 0 ? -1 : PyObject_IsTrue(PyTuple_GetItem(pair, 1));
        if (descending < 0)
            return 0;
        self->order[n].place = (int)place;
        self->order[n].descending = descending;
    }
    for (int n = 0; n < self->ties; n++) {
        Py_ssize_t place = number_of(ties, n, 0, self->keys);
        if (place < 0)
            return 0;
        self->tie[n] = (int)place;
    }
    return 1;
}

static void ranked_free(PyObject *object)
{
    Ranked *self = (Ranked *)object;
    PyTypeObject *type = Py_TYPE(object);
    void *arrays[] = {
        self->order, self->tie, self->log, self->subject, self->subject_used, self->cell,
        self->size, self->free_slot, self->is_touched, self->is_best, self->table,
        self->touched, self->best, self->before,
    };
    for (size_t n = 0; n < sizeof(arrays) / sizeof(arrays[0]); n++)
        free(arrays[n]);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *ranked_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *ranking, *order, *ties;
    if (named != NULL && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "a ranking, without a name");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!", &PyTuple_Type, &ranking))
        return NULL;
    /* As `Ranking` has them. */
    Py_ssize_t keys = 0, offset = 0, wanted = 0;
    long long width = 0;
    int apart = 0;
    if (!PyArg_ParseTuple(ranking, "nO!O!nnLp", &keys, &PyTuple_Type, &order, &PyTuple_Type, &ties,
                          &offset, &wanted, &width, &apart))
        return NULL;
    if (keys < 1 || keys > 64 || PyTuple_Size(order) > 1000 || PyTuple_Size(ties) > 1000 ||
        offset < 0 || wanted <= offset || wanted > PY_SSIZE_T_MAX / 1024 || width < 0) {
        PyErr_SetString(PyExc_ValueError, "a ranking that makes no sense");
        return NULL;
    }
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Ranked *self = (Ranked *)make(type, 0);
    if (self == NULL)
        return NULL;
    self->keys = (int)keys;
    self->offset = offset;
    self->wanted = wanted;
    self->reserve = 3 * wanted < 32 ? 32 : 3 * wanted;
    self->width = width;
    self->apart = (char)apart;
    self->all_best = 1;
    self->before_count = -1;
    if (!read_order(self, order, ties)) {
        Py_DECREF(self);
        return NULL;
    }
    if (apart) {
        self->before = calloc((size_t)(wanted - offset), (size_t)(keys + 1) * sizeof(int64_t));
        if (self->before == NULL) {
            Py_DECREF(self);
            return PyErr_NoMemory();
        }
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"batch", ranked_batch, METH_VARARGS, "Rows as `run` takes them."},
    {"run", ranked_run, METH_VARARGS, "Take rows until one may have changed what is shown."},
    {"shown", ranked_shown, METH_NOARGS, "The keys and sizes of the groups that are shown."},
    {"before", ranked_before, METH_NOARGS, "What was shown before the last row came."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"changed", T_BOOL, offsetof(Ranked, changed), READONLY, "Whether the last row may matter."},
    {"refused", T_BOOL, offsetof(Ranked, refused), READONLY, "Whether a row was not taken."},
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
