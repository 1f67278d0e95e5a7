// Rings: the two rings of frames, as pb_stub/rings.py has them in Python.
//
// The supervisor's file `down` is read only; of `up` only the first page and the ring are used.
// The supervisor may change `down` at any time. The size of a frame, and whether it is a PAD, are
// loaded once and checked before the frame is copied out; everything else is read from the copy.
//
// One thread at a time reads. Any thread may write: what is written is guarded by the GIL, or else by
// `mu`, while which no Python code runs and nothing waits.
#include "accelerator.h"

typedef struct {
	PyObject ob_base;
	Py_buffer down, up;
	uint64_t head; // bytes read of down's ring
	uint64_t tail; // bytes written of up's ring
	uint32_t life, rung;
	int was_rung; // rung holds the sleep for which the bell was rung
	int bell;
	MUTEX(mu)
} Rings;

#define WORD32(buffer, at) ((uint32_t *)((char *)(buffer).buf + (at)))

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(1 /* CLOCK_MONOTONIC */, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int unsigned_of(PyObject *o, uint64_t *to) {
	*to = PyLong_AsUnsignedLongLong(o);
	return !(*to == (uint64_t)-1 && PyErr_Occurred());
}

// Rings(down, up, life, bell_out)
static PyObject *rings_new(PyTypeObject *type, PyObject *args, PyObject *named) {
	uint64_t life, bell;
	if (named || !arguments(PyTuple_Size(args), 4) || !unsigned_of(PyTuple_GetItem(args, 2), &life) ||
	    !unsigned_of(PyTuple_GetItem(args, 3), &bell)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_TypeError, "Rings takes no keywords");
		return NULL;
	}
	Rings *r = (Rings *)PyType_GenericAlloc(type, 0);
	if (!r)
		return NULL;
	if (PyObject_GetBuffer(PyTuple_GetItem(args, 0), &r->down, PyBUF_SIMPLE) ||
	    PyObject_GetBuffer(PyTuple_GetItem(args, 1), &r->up, PyBUF_WRITABLE)) {
		Py_DecRef((PyObject *)r);
		return NULL;
	}
	if (r->down.len < RING_AT + RING_SIZE || r->up.len < RING_AT + RING_SIZE || ((uintptr_t)r->down.buf | (uintptr_t)r->up.buf) & 7) {
		PyErr_Format(PyExc_ValueError, "the files have %zd and %zd bytes, want %d, at a multiple of 8", r->down.len, r->up.len,
		             RING_AT + RING_SIZE);
		Py_DecRef((PyObject *)r);
		return NULL;
	}
	r->life = (uint32_t)life;
	r->bell = (int)bell;
	return (PyObject *)r;
}

static void rings_dealloc(PyObject *self) {
	Rings *r = (Rings *)self;
	PyTypeObject *type = Py_TYPE(self);
	if (r->down.obj)
		PyBuffer_Release(&r->down);
	if (r->up.obj)
		PyBuffer_Release(&r->up);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DecRef((PyObject *)type);
}

static void advance(Rings *r, uint64_t head) {
	store(&r->head, head); // `empty` reads it in any thread
	store(WORD64(r->up, HEAD_AT), head);
}

// take() returns the next frame, or None; ProtocolError if it is invalid.
static PyObject *rings_take(PyObject *self, PyObject *unused) {
	Rings *r = (Rings *)self;
	(void)unused;
	for (;;) {
		uint64_t head = r->head, tail = load(WORD64(r->down, TAIL_AT));
		if (tail == head)
			return kept(Py_None);
		uint64_t at = head % RING_SIZE;
		const char *ring = (const char *)r->down.buf + RING_AT;
		uint32_t size = __atomic_load_n((uint32_t *)(ring + at), __ATOMIC_RELAXED);
		if (size < 8)
			return PyErr_Format(protocol_error, "a frame has %u bytes, want at least 8", (unsigned)size);
		uint64_t padded = PADDED((uint64_t)size, 8);
		if (tail - head > RING_SIZE && tail > head)
			return PyErr_Format(protocol_error, "there are %llu bytes of frames, want at most %d", (unsigned long long)(tail - head), RING_SIZE);
		if (padded > RING_SIZE - at)
			return PyErr_Format(protocol_error, "a frame has %u bytes, %llu beyond the ring", (unsigned)size,
			                    (unsigned long long)(padded - (RING_SIZE - at)));
		if (tail < head || padded > tail - head)
			return PyErr_Format(protocol_error, "a frame has %u bytes, %llu beyond the tail", (unsigned)size,
			                    (unsigned long long)(head + padded - tail));
		if (!__atomic_load_n((uint16_t *)(ring + at + 4), __ATOMIC_RELAXED)) { // PAD, which may be shorter than a header
			advance(r, head + padded);
			continue;
		}
		if (size < HEADER)
			return PyErr_Format(protocol_error, "a frame has %u bytes, want at least %d", (unsigned)size, HEADER);
		PyObject *frame = PyBytes_FromStringAndSize(ring + at, size);
		if (frame)
			advance(r, head + padded);
		return frame;
	}
}

// empty() returns whether there is nothing to take.
static PyObject *rings_empty(PyObject *self, PyObject *unused) {
	Rings *r = (Rings *)self;
	(void)unused;
	return PyBool_FromLong(load(WORD64(r->down, TAIL_AT)) == load(&r->head));
}

// yields yields the core until there is a frame, or for budget ns. Returns 0 if a yield took longer
// than SLOW_YIELD_NS.
static int yields(Rings *r, uint64_t budget) {
	int clean = 1;
	PyThreadState *state = PyEval_SaveThread();
	uint64_t began = now(), before = began;
	for (;;) {
		sched_yield();
		uint64_t at = now();
		if (at - before > SLOW_YIELD_NS) {
			clean = 0;
			break;
		}
		if (load(WORD64(r->down, TAIL_AT)) != r->head || at - began > budget)
			break;
		before = at;
	}
	before = now();
	PyEval_RestoreThread(state);
	// A thread that holds the interpreter's lock delays this one like a slow yield.
	return clean && now() - before <= SLOW_YIELD_NS;
}

// spun spins and records that, like Rings.next; 0 with an error.
static int spun(Rings *r, PyObject *spin, uint64_t left, uint64_t clean_left) {
	int clean;
	for (;; left -= SPIN_STEP_NS) {
		clean = yields(r, left < SPIN_STEP_NS ? left : SPIN_STEP_NS);
		if (!clean || left <= SPIN_STEP_NS || load(WORD64(r->down, TAIL_AT)) != r->head)
			break;
		if (PyErr_CheckSignals())
			return 0;
	}
	if (clean && clean_left > 1)
		return set_number(spin, SPIN_CLEAN, clean_left - 1);
	PyObject *done = PyObject_CallMethod(spin, clean ? "clean" : "slow", NULL);
	dropped(done);
	return done != NULL;
}

// next(spin) returns the next frame, after a spin if needed, or the time before a spin in vain.
static PyObject *rings_next(PyObject *self, PyObject *spin) {
	Rings *r = (Rings *)self;
	PyObject *frame = rings_take(self, NULL);
	if (frame != Py_None)
		return frame;
	Py_DecRef(frame);
	uint64_t began = now(), budget, average, pause, clean_left;
	if (Py_TYPE(spin) != spin_type || !unsigned_in(spin, SPIN_BUDGET, &budget) || !unsigned_in(spin, SPIN_AVERAGE, &average) ||
	    !unsigned_in(spin, SPIN_PAUSE, &pause) || !unsigned_in(spin, SPIN_CLEAN, &clean_left))
		return PyLong_FromUnsignedLongLong(began);
	if (pause && !set_number(spin, SPIN_PAUSE, pause - 1))
		return NULL;
	if (pause || average >= budget)
		return PyLong_FromUnsignedLongLong(began);
	if (!spun(r, spin, budget, clean_left))
		return NULL;
	frame = rings_take(self, NULL);
	if (frame == Py_None) {
		Py_DecRef(frame);
		return PyLong_FromUnsignedLongLong(began);
	}
	uint64_t posted = load(WORD64(r->down, POSTED_AT)), waited = posted > began ? posted - began : 0;
	if (waited > budget * LONGEST_WAIT)
		waited = budget * LONGEST_WAIT;
	if (frame && !set_number(spin, SPIN_AVERAGE, (uint64_t)((int64_t)average + (((int64_t)waited - (int64_t)average) >> 3)))) {
		Py_DecRef(frame);
		return NULL;
	}
	return frame;
}

static void announce(Rings *r, uint64_t tail) {
	store(WORD64(r->up, POSTED_AT), now());
	store(WORD64(r->up, TAIL_AT), r->tail = tail);
}

// room returns the free bytes of the up ring. The supervisor may be ahead: it has read the frames of
// a stub that ended before this one.
static uint64_t room(Rings *r) {
	int64_t used = (int64_t)(r->tail - load(WORD64(r->down, HEAD_AT)));
	return used <= 0 ? RING_SIZE : used <= RING_SIZE ? (uint64_t)(RING_SIZE - used) : 0;
}

// put copies a frame into the ring and announces it; 0 if there is no room now.
static int put(Rings *r, const char *frame, size_t size) {
	size_t padded = PADDED(size, 8), at = r->tail % RING_SIZE, left = RING_SIZE - at;
	char *ring = (char *)r->up.buf + RING_AT;
	// The rest after a frame is empty or fits a header, so that a PAD always fits.
	if (padded != left && padded + HEADER > left) {
		if (room(r) < left)
			return 0;
		memset(ring + at, 0, HEADER);
		put32(ring + at, (uint32_t)left);
		put32(ring + at + 8, r->life);
		announce(r, r->tail + left);
		at = 0;
	}
	if (room(r) < padded)
		return 0;
	memcpy(ring + at, frame, size);
	announce(r, r->tail + padded);
	return 1;
}

// ring_bell wakes the supervisor if it sleeps and was not yet rung for this sleep. Returns 0 or the
// number of an error.
static int ring_bell(Rings *r) {
	// Between the store of the tail and the load of the sleep word. The supervisor does the same
	// with its own words, so at least one side sees the other.
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	uint32_t asleep = __atomic_load_n(WORD32(r->down, SLEEP_AT), __ATOMIC_ACQUIRE);
	if (!(asleep & 1) || (r->was_rung && asleep == r->rung))
		return 0;
	r->rung = asleep;
	r->was_rung = 1;
	if (write(r->bell, "", 1) < 0) {
		int error = *__errno_location();
		if (error != 11 /* EAGAIN: rung often enough */ && error != 32 /* EPIPE: the reader notices it */)
			return error;
	}
	return 0;
}

// unless returns a new reference unless there is an error of that number, which it raises.
static PyObject *unless(int error, PyObject *o) {
	if (!error)
		return kept(o);
	*__errno_location() = error;
	return PyErr_SetFromErrno(PyExc_OSError);
}

static int frame_of(PyObject *o, const char **frame, Py_ssize_t *size) {
	*frame = PyBytes_AsString(o);
	if (!*frame)
		return 0;
	*size = PyBytes_Size(o);
	if (*size >= HEADER && *size <= RING_SIZE / 2)
		return 1;
	PyErr_Format(PyExc_ValueError, "a frame has %zd bytes, want %d to %d", *size, HEADER, RING_SIZE / 2);
	return 0;
}

// write(frame) copies a frame into the ring; False if there is no room now.
static PyObject *rings_write(PyObject *self, PyObject *o) {
	const char *frame;
	Py_ssize_t size;
	if (!frame_of(o, &frame, &size))
		return NULL;
	LOCK(((Rings *)self)->mu);
	int done = put((Rings *)self, frame, (size_t)size);
	UNLOCK(((Rings *)self)->mu);
	return PyBool_FromLong(done);
}

// send(frame) does the same and rings the bell, in one step that no other thread can interrupt.
static PyObject *rings_send(PyObject *self, PyObject *o) {
	const char *frame;
	Py_ssize_t size;
	if (!frame_of(o, &frame, &size))
		return NULL;
	LOCK(((Rings *)self)->mu);
	int done = put((Rings *)self, frame, (size_t)size), error = done ? ring_bell((Rings *)self) : 0;
	UNLOCK(((Rings *)self)->mu);
	return unless(error, done ? Py_True : Py_False);
}

// ring() wakes the supervisor if it sleeps.
static PyObject *rings_ring(PyObject *self, PyObject *unused) {
	(void)unused;
	LOCK(((Rings *)self)->mu);
	int error = ring_bell((Rings *)self);
	UNLOCK(((Rings *)self)->mu);
	return unless(error, Py_None);
}

// room() returns the free bytes of the up ring.
static PyObject *rings_room(PyObject *self, PyObject *unused) {
	(void)unused;
	LOCK(((Rings *)self)->mu);
	uint64_t bytes = room((Rings *)self);
	UNLOCK(((Rings *)self)->mu);
	return PyLong_FromUnsignedLongLong(bytes);
}

static PyMethodDef methods[] = {
	{"take", rings_take, METH_NOARGS, "take()\n--\n\nReturn the next frame, or None."},
	{"empty", rings_empty, METH_NOARGS, "empty()\n--\n\nReturn whether there is nothing to take."},
	{"next", rings_next, METH_O, "next(spin)\n--\n\nTake the next frame, after a spin if needed."},
	{"write", rings_write, METH_O, "write(frame)\n--\n\nWrite a frame; False if there is no room now."},
	{"send", rings_send, METH_O, "send(frame)\n--\n\nWrite a frame and ring; False if there is no room now."},
	{"ring", rings_ring, METH_NOARGS, "ring()\n--\n\nWake the supervisor if it sleeps."},
	{"room", rings_room, METH_NOARGS, "room()\n--\n\nReturn the free bytes of the up ring."},
	{0},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)rings_new}, {Py_tp_dealloc, (void *)rings_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
PyType_Spec rings_spec = {"pb_stub._accelerator.Rings", sizeof(Rings), 0, Py_TPFLAGS_DEFAULT, slots};
