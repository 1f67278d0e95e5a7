// Blocks of the arena, as Pool and Block in pb_stub/pool.py have them.
//
// taken_block does what Pool.take, a copy and Pool.lend do if a free block with memory is at hand.
// Between its checks and its last change it runs no Python code, and so no other thread runs either.
// Therefore it needs the lock of the pool only to be free.
#include "accelerator.h"

static PyObject *name_append, *name_appendleft, *name_popleft;

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
	PyObject *generations = slot(pool, POOL_GENERATIONS), *references = slot(pool, POOL_REFERENCES), *free = slot(pool, POOL_FREE);
	uint64_t count, generation, size, used;
	if (!item(references, index, &count) || !count || !item(generations, index, &generation) ||
	    !item(slot(pool, POOL_SIZES), index, &size) || !unsigned_in(pool, POOL_USED, &used) || used < size)
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
	PyObject *all = slot(pool, POOL_LENT);
	if (!item(slot(pool, POOL_GENERATIONS), index, &generation) || generation != ticket >> 32 || !item(all, index, &lent) || !lent ||
	    !unsigned_in(pool, POOL_OUTSTANDING, &outstanding) || !outstanding || !drop(pool, index))
		return 0;
	return set_item(all, index, lent - 1) && set_number(pool, POOL_OUTSTANDING, outstanding - 1);
}

// collect processes returned tickets and deleted blocks, like Pool._collect; 0 if Python must
// continue.
static int collect(PyObject *pool) {
	PyObject *deleted = slot(pool, POOL_DROPPED);
	Py_buffer peer, words;
	uint64_t collected;
	if (!deleted || !unsigned_in(pool, POOL_COLLECTED, &collected) || PyObject_GetBuffer(slot(pool, POOL_PEER), &peer, PyBUF_SIMPLE))
		return 0;
	int done = peer.len >= RETURN_RING_AT + 8 * RETURN_RING_SLOTS;
	uint64_t before = collected, returned = done ? load(WORD64(peer, RETURNED_AT)) : 0;
	for (; done && collected != returned; collected += done)
		done = settle(pool, load(WORD64(peer, RETURN_RING_AT + 8 * (collected % RETURN_RING_SLOTS))));
	PyBuffer_Release(&peer);
	if (collected != before) {
		if (!set_number(pool, POOL_COLLECTED, collected) || PyObject_GetBuffer(slot(pool, POOL_WORDS), &words, PyBUF_WRITABLE))
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

// taken_block returns a new block with a copy of the bytes, and sets a ticket for it; NULL for
// Python, perhaps with an error.
PyObject *taken_block(PyObject *pool, const Py_buffer *view, uint64_t *ticket) {
	uint64_t size = (uint64_t)view->len, room = size_class(size), index, offset, start, address, references, lent, outstanding, used, most, generation;
	if (Py_TYPE(pool) != pool_type || size > cell)
		return NULL;
	PyObject *block = PyType_GenericAlloc(block_type, 0); // first: a garbage collection may run Python code
	PyObject *busy = slot(pool, POOL_BUSY), *free = slot(pool, POOL_FREE);
	if (!block || !busy || PyObject_Size(busy) || !collect(pool) || !unsigned_in(pool, POOL_OUTSTANDING, &outstanding) ||
	    outstanding >= RETURN_RING_SLOTS || !unsigned_in(pool, POOL_USED, &used) || !unsigned_in(pool, POOL_MOST_USED, &most))
		goto failed;
	PyObject *key = PyLong_FromUnsignedLongLong(room), *list = key ? PyDict_GetItemWithError(free, key) : NULL;
	dropped(key);
	Py_ssize_t left = list ? PyList_Size(list) : 0;
	PyObject *hollow = slot(pool, POOL_HOLLOW);
	if (left < 1 || !item(list, (uint64_t)left - 1, &index) || !item(slot(pool, POOL_OFFSETS), index, &offset) ||
	    !item(slot(pool, POOL_REFERENCES), index, &references) || references || !item(slot(pool, POOL_LENT), index, &lent) || lent ||
	    !item(slot(pool, POOL_GENERATIONS), index, &generation) || PyList_GetItem(hollow, (Py_ssize_t)index) != Py_False)
		goto failed;
	key = PyLong_FromUnsignedLongLong(offset / cell);
	PyObject *mapping = key ? PyDict_GetItemWithError(slot(pool, POOL_MAPPED), key) : NULL;
	dropped(key);
	if (!mapping || Py_TYPE(mapping) != mapping_type || !unsigned_in(mapping, MAPPING_START, &start) ||
	    !unsigned_in(mapping, MAPPING_ADDRESS, &address))
		goto failed;
	used += room;
	// In this order: only the first two could fail for lack of memory, before anything is taken.
	if ((used > most && !set_number(pool, POOL_MOST_USED, used)) || PyList_SetSlice(list, left - 1, left, NULL) ||
	    !set_number(pool, POOL_USED, used) || !set_number(pool, POOL_OUTSTANDING, outstanding + 1) ||
	    !set_item(slot(pool, POOL_REFERENCES), index, 2) || !set_item(slot(pool, POOL_LENT), index, 1))
		goto failed;
	fill(block, BLOCK_INDEX, PyLong_FromUnsignedLongLong(index));
	fill(block, BLOCK_OFFSET, PyLong_FromUnsignedLongLong(offset));
	fill(block, BLOCK_SIZE, PyLong_FromUnsignedLongLong(size));
	fill(block, BLOCK_MAPPING, kept(mapping));
	fill(block, BLOCK_DROPPED, kept(slot(pool, POOL_DROPPED)));
	*ticket = index | generation << 32;
	// The block is this thread's: other threads may run during a long copy.
	PyThreadState *state = size >= 65536 ? PyEval_SaveThread() : NULL;
	memcpy((char *)(uintptr_t)(address + offset - start), view->buf, size);
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
	PyObject *index = slot(self, BLOCK_INDEX), *deleted = slot(self, BLOCK_DROPPED);
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
	return name_append && name_appendleft && name_popleft ? PyDescr_NewMethod(block_type, &end_block_def) : NULL;
}
