// What the accelerator's files share. See docs/accelerator.md.
#ifndef ACCELERATOR_H
#define ACCELERATOR_H

#include "abi3.h"

// Slots of the Python classes that it reads and writes, by their offset in an object.
enum slot {
	TENSOR_ARRAY, TENSOR_CODE, TENSOR_DATA, TENSOR_ELEMENT, TENSOR_NAME, TENSOR_OFFSET, TENSOR_ORIGIN, TENSOR_SENT,
	TENSOR_SHAPE, TENSOR_SIZE,
	REQUEST_CORRELATION, REQUEST_FLAGS, REQUEST_HANDLE, REQUEST_ID, REQUEST_INPUTS, REQUEST_PARAMETERS, REQUEST_SENDER,
	REQUEST_TIMEOUT, REQUEST_TRACE, REQUEST_WANTED,
	RESPONSE_ERROR_SLOT, RESPONSE_OUTPUTS, RESPONSE_PARAMETERS,
	LOAN_ARRAY, LOAN_FAULTS, LOAN_KEY, LOAN_LOANS, LOAN_NAME, LOAN_MAPPING, LOAN_OFFSET, LOAN_SIZE, LOAN_TICKET,
	BLOCK_DROPPED, BLOCK_INDEX, BLOCK_MAPPING, BLOCK_OFFSET, BLOCK_SIZE,
	LOANS_COPYING, LOANS_MAPPED, LOANS_PAGEMAP, LOANS_CHANNEL, LOANS_LENT,
	MAPPING_ADDRESS, MAPPING_MAP, MAPPING_START,
	POOL_BUSY, POOL_COLLECTED, POOL_DROPPED, POOL_FREE, POOL_GENERATIONS, POOL_HOLLOW, POOL_LENT, POOL_MAPPED, POOL_MOST_USED, POOL_MU,
	POOL_OFFSETS, POOL_OUTSTANDING, POOL_PEER, POOL_REFERENCES, POOL_SIZES, POOL_WORDS, POOL_USED,
	PASSED_LOAN, PASSED_OFFSET, PASSED_SIZE,
	SPIN_AVERAGE, SPIN_CLEAN, SPIN_PAUSE, SPIN_BUDGET,
	SLOTS
};
extern int slot_at[SLOTS];

// Objects of Python that `configure` has received; they live as long as the process.
extern PyTypeObject *tensor_type, *request_type, *response_type, *array_type;
extern PyTypeObject *loan_type, *block_type, *loans_type, *mapping_type, *pool_type, *passed_type, *spin_type;
extern uint64_t zero_copy_min, cell; // of loans.py and mappings.py
extern PyObject *numpy_types; // by Triton's number, None where numpy has no type
extern PyObject *type_codes;  // Triton's number by dtype
extern PyObject *no_parameters;
extern PyObject *protocol_error;
extern PyObject *empty_text, *zero;

static inline PyObject **place(PyObject *o, enum slot s) { return (PyObject **)((char *)o + slot_at[s]); }

// fixed returns what a slot has, borrowed, or NULL. Nobody changes the slot while others have the
// object, or the caller holds the lock that guards it.
static inline PyObject *fixed(PyObject *o, enum slot s) { return *place(o, s); }

// fill sets a slot of a new object to a new reference.
static inline void fill(PyObject *o, enum slot s, PyObject *value) { *place(o, s) = value; }

static inline PyObject *kept(PyObject *o) {
	Py_IncRef(o);
	return o;
}
static inline void dropped(PyObject *o) {
	if (o)
		Py_DecRef(o);
}

// With the GIL, a borrowed reference stays valid until other code runs. Without it, another thread
// may replace an item or the value of a slot at any time. So slot, list_item and dict_item, which
// return borrowed references, keep what they return until the end of the block that has a SCOPE, and
// so does held.
#if FREE_THREADED
typedef struct {
	unsigned count;
	PyObject *objects[16];
} Scope;

static inline PyObject *keep(Scope *scope, PyObject *o) {
	if (o) {
		if (scope->count == sizeof scope->objects / sizeof scope->objects[0])
			__builtin_trap(); // the block has no such number of calls
		scope->objects[scope->count++] = o;
	}
	return o;
}

static inline void end_scope(Scope *scope) {
	while (scope->count)
		Py_DecRef(scope->objects[--scope->count]);
}

static inline PyObject *new_slot(PyObject *o, enum slot s) {
	PyCriticalSection section;
	PyCriticalSection_Begin(&section, o);
	PyObject *value = fixed(o, s);
	if (value)
		Py_IncRef(value);
	PyCriticalSection_End(&section);
	return value;
}

static inline PyObject *new_dict_item(PyObject *dict, PyObject *key) {
	PyObject *value;
	return PyDict_GetItemRef(dict, key, &value) > 0 ? value : NULL;
}

#define SCOPE                                             \
	Scope scope __attribute__((cleanup(end_scope))); \
	scope.count = 0
#define slot(o, s) keep(&scope, new_slot(o, s))
#define list_item(list, i) keep(&scope, PyList_GetItemRef(list, i))
#define dict_item(dict, key) keep(&scope, new_dict_item(dict, key))
#define held(o) keep(&scope, kept(o))
#define BEGIN_SECTION(o)         \
	PyCriticalSection section; \
	PyCriticalSection_Begin(&section, o)
#define END_SECTION PyCriticalSection_End(&section)
#define MUTEX(mu) PyMutex mu;
#define LOCK(mu) PyMutex_Lock(&(mu))
#define UNLOCK(mu) PyMutex_Unlock(&(mu))
#else
#define SCOPE
#define slot(o, s) fixed(o, s)
#define list_item(list, i) PyList_GetItem(list, i)
#define dict_item(dict, key) PyDict_GetItemWithError(dict, key)
#define held(o) (o)
#define BEGIN_SECTION(o)
#define END_SECTION
#define MUTEX(mu)
#define LOCK(mu)
#define UNLOCK(mu)
#endif

// change sets a slot to a new reference and releases the old one.
static inline void change(PyObject *o, enum slot s, PyObject *value) {
	BEGIN_SECTION(o);
	PyObject *old = *place(o, s);
	__atomic_store_n(place(o, s), value, __ATOMIC_RELEASE); // Python reads it without the section
	END_SECTION;
	if (old)
		Py_DecRef(old);
}

// first sets a slot to a new reference if it is unset or None; otherwise it returns 0, and has
// changed nothing.
static inline int first(PyObject *o, enum slot s, PyObject *value) {
	BEGIN_SECTION(o);
	PyObject *old = *place(o, s);
	int done = !old || old == Py_None;
	if (done)
		__atomic_store_n(place(o, s), value, __ATOMIC_RELEASE);
	END_SECTION;
	if (done && old)
		Py_DecRef(old);
	return done;
}

static inline uint16_t u16(const void *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static inline uint32_t u32(const void *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t u64(const void *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline void put16(void *p, uint16_t v) { memcpy(p, &v, 2); }
static inline void put32(void *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void put64(void *p, uint64_t v) { memcpy(p, &v, 8); }

// unsigned_value gets an int; 0 without an error if it is none that fits.
static inline int unsigned_value(PyObject *value, uint64_t *to) {
	if (!value || Py_TYPE(value) != &PyLong_Type)
		return 0;
	*to = PyLong_AsUnsignedLongLong(value);
	if (*to != (uint64_t)-1 || !PyErr_Occurred())
		return 1;
	PyErr_Clear();
	return 0;
}

// unsigned_in does so with the value of a slot, and fixed_unsigned with that of a fixed slot.
static inline int unsigned_in(PyObject *o, enum slot s, uint64_t *to) {
	SCOPE;
	return unsigned_value(slot(o, s), to);
}
static inline int fixed_unsigned(PyObject *o, enum slot s, uint64_t *to) { return unsigned_value(fixed(o, s), to); }

// set_number sets a slot to an int; 0 with an error.
static inline int set_number(PyObject *o, enum slot s, uint64_t value) {
	PyObject *number = PyLong_FromUnsignedLongLong(value);
	if (number)
		change(o, s, number);
	return number != NULL;
}

// These order what another process does with them and with the bytes around them.
static inline uint64_t load(uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void store(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

#define WORD64(buffer, at) ((uint64_t *)((char *)(buffer).buf + (at)))

#define PADDED(n, to) (((n) + ((to) - 1)) & ~(size_t)((to) - 1))

// Facts of docs/protocol.md, which pb_stub/accelerator.py compares with its own.
enum {
	HEADER = 24, REQUEST_SIZE = 64, DESCRIPTOR = 40, RESPONSE_SIZE = 32, EXECUTED_SIZE = 32, MOST_DIMENSIONS = 64,
	TAIL_AT = 0x040, POSTED_AT = 0x048, SLEEP_AT = 0x080, HEAD_AT = 0x0C0, RING_AT = 0x10000, RING_SIZE = 0x20000,
	RETURNED_AT = 0x100, COLLECTED_AT = 0x100, RETURN_RING_AT = 0x1000, RETURN_RING_SLOTS = 4096, PAGE = 4096,
	MAX_INLINE = 4096, MAX_INLINE_TOTAL = 28672,
	INFER_SIZE = 32, KIND_EXECUTED = 67, KIND_RESPONSE = 69, KIND_INFER = 73,
	COPIES = 1, ALL_OUTPUTS = 0xFFFF, CORRELATION_TEXT = 1,
	PRESENT = 1, FINAL = 2,
	REGION_FRAME = 0, REGION_REQUESTS = 1, REGION_ARENA = 2,
	TYPE_BYTES = 13,
	SPIN_STEP_NS = 1000000, SLOW_YIELD_NS = 50000, LONGEST_WAIT = 8, // of spin.py
};

PyObject *read_requests(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *read_response(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *claim(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *gather(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *gather_one(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *pack_infer(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *encode_strings(PyObject *, PyObject *);
PyObject *count_strings(PyObject *, PyObject *);
PyObject *fill_strings(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *faults(PyObject *, PyObject *);
PyObject *claim_mapping(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *lent_array(PyObject *, PyObject *, PyObject *, PyObject *);
int passed_on(PyObject *, PyObject *, const Py_buffer *, long *, PyObject **);
PyObject *taken_block(PyObject *, const Py_buffer *, uint64_t *);
PyObject *make_loan_end(PyObject *), *make_loan_died(void), *make_block_end(void);
int make_names(void);
PyObject *address(PyObject *, PyObject *);
PyObject *make_methods(PyObject *, PyObject *const *, Py_ssize_t);
extern PyType_Spec rings_spec, gathered_spec;
extern PyTypeObject *gathered_type;

// arguments checks the number of arguments; the callers are our own Python code.
static inline int arguments(Py_ssize_t got, Py_ssize_t want) {
	if (got == want)
		return 1;
	PyErr_Format(PyExc_TypeError, "got %zd arguments, want %zd", got, want);
	return 0;
}

#endif
