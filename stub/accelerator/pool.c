// Blocks of the arena, as Pool and Block in pb_stub/pool.py have them.
//
// taken_block does what Pool.take, a copy and Pool.lend do if a free block with memory is at hand.
// Between its checks and its last change it runs no Python code, and so with the GIL no other thread
// runs either. Therefore it needs the lock of the pool only to be free. Without the GIL it takes the
// lock, but does not wait for it.
#include "accelerator.h"

static PyObject *name_append, *name_appendleft, *name_popleft;

#if FREE_THREADED
static PyObject *name_acquire, *name_release;

static int make_lock_names(void) {
	name_acquire = PyUnicode_InternFromString("acquire");
	name_release = PyUnicode_InternFromString("release");
	return name_acquire && name_release;
}

static int lock(PyObject *pool) {
	PyObject *mu = fixed(pool, POOL_MU), *got = mu ? PyObject_CallMethodObjArgs(mu, name_acquire, Py_False, NULL) : NULL;
	dropped(got);
	return got == Py_True;
}

static void unlock(PyObject *pool) {
	PyObject *type, *value, *trace;
	PyErr_Fetch(&type, &value, &trace);
	dropped(PyObject_CallMethodObjArgs(fixed(pool, POOL_MU), name_release, NULL));
	PyErr_Restore(type, value, trace);
}
#else
static int make_lock_names(void) { return 1; }
static int lock(PyObject *pool) { return pool != NULL; }
static void unlock(PyObject *pool) { (void)pool; }
#endif

// item gets an item of a list of numbers; 0 if there is none.
static int item(PyObject *list, uint64_t index, uint64_t *to) {
	if (!list || Py_TYPE(list) != &PyList_Type || index >= (uint64_t)PyList_Size(list))
		return 0;
	*to = PyLong_AsUnsignedLongLong(PyList_GetItem(list, (Py_ssize_t)index));
	if (*to != (uint64_t)-1 || !PyErr_Occurred())
		return 1;
	PyErr_Clear();
	return 0;
}

static int set_item(PyObject *list, uint64_t index, uint64_t value) {
	PyObject *o = PyLong_FromUnsignedLongLong(value);
	return o && !PyList_SetItem(list, (Py_ssize_t)index, o);
}

// drop releases one reference to a block, like Pool._drop.
static int drop(PyObject *pool, uint64_t index) {
	PyObject *generations = fixed(pool, POOL_GENERATIONS), *references = fixed(pool, POOL_REFERENCES), *free = fixed(pool, POOL_FREE);
	uint64_t count, generation, size, used;
	if (!item(references, index, &count) || !count || !item(generations, index, &generation) ||
	    !item(fixed(pool, POOL_SIZES), index, &size) || !fixed_unsigned(pool, POOL_USED, &used) || used < size)
		return 0;
	if (count > 1)
		return set_item(references, index, count - 1);
	PyObject *key = PyLong_FromUnsignedLongLong(size), *list = key ? PyDict_GetItemWithError(free, key) : NULL, *number;
	dropped(key);
	if (!list || !(number = PyLong_FromUnsignedLongLong(index)))
		return 0; // the first free block of its size
	int done = set_item(references, index, 0) && set_item(generations, index, (generation + 1) & 0xFFFFFFFF) &&
	           set_number(pool, POOL_USED, used - size) && !PyList_Append(list, number);
	Py_DecRef(number);
	return done;
}

// settle processes a ticket that the supervisor has returned, like Pool._settle.
static int settle(PyObject *pool, uint64_t ticket) {
	uint64_t index = ticket & 0xFFFFFFFF, generation, lent, outstanding;
	PyObject *all = fixed(pool, POOL_LENT);
	if (!item(fixed(pool, POOL_GENERATIONS), index, &generation) || generation != ticket >> 32 || !item(all, index, &lent) || !lent ||
	    !fixed_unsigned(pool, POOL_OUTSTANDING, &outstanding) || !outstanding || !drop(pool, index))
		return 0;
	return set_item(all, index, lent - 1) && set_number(pool, POOL_OUTSTANDING, outstanding - 1);
}

// collect processes returned tickets and deleted blocks, like Pool._collect; 0 if Python must
// continue.
static int collect(PyObject *pool) {
	PyObject *deleted = fixed(pool, POOL_DROPPED);
	Py_buffer peer, words;
	uint64_t collected;
	if (!deleted || !fixed_unsigned(pool, POOL_COLLECTED, &collected) || PyObject_GetBuffer(fixed(pool, POOL_PEER), &peer, PyBUF_SIMPLE))
		return 0;
	int done = peer.len >= RETURN_RING_AT + 8 * RETURN_RING_SLOTS;
	uint64_t before = collected, returned = done ? load(WORD64(peer, RETURNED_AT)) : 0;
	for (; done && collected != returned; collected += done)
		done = settle(pool, load(WORD64(peer, RETURN_RING_AT + 8 * (collected % RETURN_RING_SLOTS))));
	PyBuffer_Release(&peer);
	if (collected != before) {
		if (!set_number(pool, POOL_COLLECTED, collected) || PyObject_GetBuffer(fixed(pool, POOL_WORDS), &words, PyBUF_WRITABLE))
			return 0;
		store(WORD64(words, COLLECTED_AT), collected);
		PyBuffer_Release(&words);
	}
	while (done && PyObject_Size(deleted) > 0) {
		PyObject *index = PyObject_CallMethodObjArgs(deleted, name_popleft, NULL);
		if (!index)
			return 0;
		done = drop(pool, PyLong_AsUnsignedLongLong(index));
		if (!done)
			dropped(PyObject_CallMethodObjArgs(deleted, name_appendleft, index, NULL));
		Py_DecRef(index);
	}
	return done;
}

static uint64_t size_class(uint64_t size) {
	uint64_t pages = (size + PAGE - 1) / PAGE;
	if (pages <= 8)
		return (pages ? pages : 1) * PAGE;
	int shift = 61 - __builtin_clzll(pages - 1);
	return ((((pages - 1) >> shift) + 1) << shift) * PAGE;
}

// take fills a new block for size bytes and sets its ticket. Returns the address of its memory; 0
// for Python, perhaps with an error. The caller has the lock of the pool.
static uintptr_t take(PyObject *pool, uint64_t size, PyObject *block, uint64_t *ticket) {
	uint64_t room = size_class(size), index, offset, start, address, references, lent, outstanding, used, most, generation;
	PyObject *free = fixed(pool, POOL_FREE);
	if (!collect(pool) || !fixed_unsigned(pool, POOL_OUTSTANDING, &outstanding) ||
	    outstanding >= RETURN_RING_SLOTS || !fixed_unsigned(pool, POOL_USED, &used) || !fixed_unsigned(pool, POOL_MOST_USED, &most))
		return 0;
	PyObject *key = PyLong_FromUnsignedLongLong(room), *list = key ? PyDict_GetItemWithError(free, key) : NULL;
	dropped(key);
	Py_ssize_t left = list ? PyList_Size(list) : 0;
	PyObject *hollow = fixed(pool, POOL_HOLLOW);
	if (left < 1 || !item(list, (uint64_t)left - 1, &index) || !item(fixed(pool, POOL_OFFSETS), index, &offset) ||
	    !item(fixed(pool, POOL_REFERENCES), index, &references) || references || !item(fixed(pool, POOL_LENT), index, &lent) || lent ||
	    !item(fixed(pool, POOL_GENERATIONS), index, &generation) || PyList_GetItem(hollow, (Py_ssize_t)index) != Py_False)
		return 0;
	key = PyLong_FromUnsignedLongLong(offset / cell);
	PyObject *mapping = key ? PyDict_GetItemWithError(fixed(pool, POOL_MAPPED), key) : NULL;
	dropped(key);
	if (!mapping || Py_TYPE(mapping) != mapping_type || !fixed_unsigned(mapping, MAPPING_START, &start) ||
	    !fixed_unsigned(mapping, MAPPING_ADDRESS, &address))
		return 0;
	used += room;
	// In this order: only the first two could fail for lack of memory, before anything is taken.
	if ((used > most && !set_number(pool, POOL_MOST_USED, used)) || PyList_SetSlice(list, left - 1, left, NULL) ||
	    !set_number(pool, POOL_USED, used) || !set_number(pool, POOL_OUTSTANDING, outstanding + 1) ||
	    !set_item(fixed(pool, POOL_REFERENCES), index, 2) || !set_item(fixed(pool, POOL_LENT), index, 1))
		return 0;
	fill(block, BLOCK_INDEX, PyLong_FromUnsignedLongLong(index));
	fill(block, BLOCK_OFFSET, PyLong_FromUnsignedLongLong(offset));
	fill(block, BLOCK_SIZE, PyLong_FromUnsignedLongLong(size));
	fill(block, BLOCK_MAPPING, kept(mapping));
	fill(block, BLOCK_DROPPED, kept(fixed(pool, POOL_DROPPED)));
	*ticket = index | generation << 32;
	return (uintptr_t)(address + offset - start);
}

// taken_block returns a new block with a copy of the bytes, and sets a ticket for it; NULL for
// Python, perhaps with an error.
PyObject *taken_block(PyObject *pool, const Py_buffer *view, uint64_t *ticket) {
	uint64_t size = (uint64_t)view->len;
	if (Py_TYPE(pool) != pool_type || size > cell)
		return NULL;
	PyObject *block = PyType_GenericAlloc(block_type, 0); // first: a garbage collection may run Python code
	PyObject *busy = fixed(pool, POOL_BUSY);
	if (!block || !busy || PyObject_Size(busy) || !lock(pool))
		goto failed;
	uintptr_t at = take(pool, size, block, ticket);
	unlock(pool);
	if (!at)
		goto failed;
	// The block is this thread's: other threads may run during a long copy.
	PyThreadState *state = size >= 65536 ? PyEval_SaveThread() : NULL;
	memcpy((char *)at, view->buf, size);
	if (state)
		PyEval_RestoreThread(state);
	return block;
failed:
	dropped(block);
	return NULL;
}

// Block.__del__()
static PyObject *end_block(PyObject *self, PyObject *unused) {
	(void)unused;
	PyObject *index = fixed(self, BLOCK_INDEX), *deleted = fixed(self, BLOCK_DROPPED);
	if (!index || !deleted)
		return kept(Py_None); // it was never taken
	return PyObject_CallMethodObjArgs(deleted, name_append, index, NULL);
}

static PyMethodDef end_block_def = {"__del__", end_block, METH_NOARGS, "__del__($self, /)\n--\n\nReturn the block."};

// make_block_end returns what replaces Block.__del__.
PyObject *make_block_end(void) {
	name_append = PyUnicode_InternFromString("append");
	name_appendleft = PyUnicode_InternFromString("appendleft");
	name_popleft = PyUnicode_InternFromString("popleft");
	return name_append && name_appendleft && name_popleft && make_lock_names() ? PyDescr_NewMethod(block_type, &end_block_def) : NULL;
}
