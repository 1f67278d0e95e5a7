// The module, and what it knows of the Python classes.
#include "accelerator.h"

int slot_at[SLOTS];
PyTypeObject *tensor_type, *request_type, *response_type, *array_type;
PyTypeObject *loan_type, *block_type, *loans_type, *mapping_type, *pool_type, *passed_type, *spin_type;
uint64_t zero_copy_min, cell;
PyObject *numpy_types, *type_codes, *no_parameters, *protocol_error, *empty_text, *zero;

static const char *const slot_names[SLOTS] = {
	"_array", "_code", "_data", "_element", "_name", "_offset", "_origin", "_sent", "_shape", "_size",
	"_correlation", "_flags", "_handle", "_id", "_inputs", "_parameters", "_sender", "_timeout", "_trace", "_wanted",
	"_error", "_outputs", "_parameters",
	"_array", "_faults", "_key", "_loans", "_name", "mapping", "offset", "size", "ticket",
	"_dropped", "index", "mapping", "offset", "size",
	"_copying", "_mapped", "_pagemap", "channel", "lent",
	"address", "map", "start",
	"_busy", "_collected", "_dropped", "_free", "_generations", "_hollow", "_lent", "_mapped", "_most_used", "_mu",
	"_offsets", "_outstanding", "_peer", "_references", "_sizes", "_words", "used",
	"loan", "offset", "size",
	"_average", "_clean", "_pause", "budget",
};

// find_slot finds the offset of a slot: it sets the slot of an object, and looks where that is.
static int find_slot(PyObject *o, long long size, enum slot s) {
	PyObject *mark = PyList_New(0); // a new object, which no other slot has
	int found = 0;
	if (!mark || PyObject_SetAttrString(o, slot_names[s], mark)) {
		dropped(mark);
		return 0;
	}
	for (long long at = sizeof(PyObject); at + (long long)sizeof(PyObject *) <= size; at += sizeof(PyObject *)) {
		if (*(PyObject **)((char *)o + at) == mark) {
			slot_at[s] = (int)at;
			found++;
		}
	}
	if (found == 1)
		change(o, s, NULL);
	Py_DecRef(mark);
	if (found != 1)
		PyErr_Format(PyExc_TypeError, "slot %s was found %d times", slot_names[s], found);
	return found == 1;
}

static int find_slots(PyTypeObject *type, int first, int end) {
	// Never deleted: the destructors of loans and blocks need their slots.
	PyObject *o = PyType_GenericAlloc(type, 0), *size = o ? PyObject_GetAttrString((PyObject *)type, "__basicsize__") : NULL;
	if (!size)
		return 0;
	for (int s = first; s < end; s++)
		if (!find_slot(o, PyLong_AsLongLong(size), (enum slot)s))
			return 0;
	Py_DecRef(size);
	return 1;
}

// raises(ProtocolError) must be called before any Rings are used.
static PyObject *raises(PyObject *self, PyObject *type) {
	(void)self;
	protocol_error = kept(type);
	return kept(Py_None);
}

// configure(Tensor, InferenceRequest, InferenceResponse, ndarray, NUMPY, CODES, NONE, Loan, Block,
// Loans, FileMapping, Pool, Passed, Spin, ZERO_COPY_MIN, CELL) must be called before all
// other functions, except those of Rings. TypeError if the objects are not laid out as expected.
static PyObject *configure(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	(void)self;
	if (!arguments(given, 16))
		return NULL;
	tensor_type = (PyTypeObject *)kept(args[0]);
	request_type = (PyTypeObject *)kept(args[1]);
	response_type = (PyTypeObject *)kept(args[2]);
	array_type = (PyTypeObject *)kept(args[3]);
	numpy_types = kept(args[4]);
	type_codes = kept(args[5]);
	no_parameters = kept(args[6]);
	loan_type = (PyTypeObject *)kept(args[7]);
	block_type = (PyTypeObject *)kept(args[8]);
	loans_type = (PyTypeObject *)kept(args[9]);
	mapping_type = (PyTypeObject *)kept(args[10]);
	pool_type = (PyTypeObject *)kept(args[11]);
	passed_type = (PyTypeObject *)kept(args[12]);
	PyTypeObject *spins = (PyTypeObject *)kept(args[13]);
	zero_copy_min = PyLong_AsUnsignedLongLong(args[14]);
	cell = PyLong_AsUnsignedLongLong(args[15]);
	empty_text = PyUnicode_InternFromString("");
	zero = PyLong_FromLong(0);
	if (!empty_text || !zero || PyErr_Occurred() || !make_names() || !find_slots(tensor_type, TENSOR_ARRAY, REQUEST_CORRELATION) ||
	    !find_slots(request_type, REQUEST_CORRELATION, RESPONSE_ERROR_SLOT) ||
	    !find_slots(response_type, RESPONSE_ERROR_SLOT, LOAN_ARRAY) || !find_slots(loan_type, LOAN_ARRAY, BLOCK_DROPPED) ||
	    !find_slots(block_type, BLOCK_DROPPED, LOANS_COPYING) || !find_slots(loans_type, LOANS_COPYING, MAPPING_ADDRESS) ||
	    !find_slots(mapping_type, MAPPING_ADDRESS, POOL_BUSY) ||
	    !find_slots(pool_type, POOL_BUSY, PASSED_LOAN) || !find_slots(passed_type, PASSED_LOAN, SPIN_AVERAGE) || !find_slots(spins, SPIN_AVERAGE, SLOTS))
		return NULL;
	spin_type = spins; // Rings are already in use
	return kept(Py_None);
}

#define FAST(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL

static PyMethodDef functions[] = {
	{"raises", raises, METH_O, NULL},
	{"configure", FAST(configure), NULL},
	{"methods", FAST(make_methods), NULL},
	{"read", FAST(read_requests), "read(reader, frame, received, outputs, choices, loans)\n--\n\nDecode EXECUTE; None for Python."},
	{"tensors", FAST(read_response), "tensors(frame, at, count, received, loans)\n--\n\nDecode descriptors; None for Python."},
	{"claim", FAST(claim), "claim(requests, responses, sender)\n--\n\nMake sender that of the answered requests; None for Python."},
	{"gather", FAST(gather), "gather(requests, responses, outgoing)\n--\n\nEncode the responses to a batch; None for Python."},
	{"gather_one", FAST(gather_one), "gather_one(handle, response, wanted, final, outgoing)\n--\n\nEncode a response; None for Python."},
	{"infer", FAST(pack_infer), "infer(life, number, batch, version, flags, window, memory, model, trace, request, sent, outgoing)\n--\n\nEncode INFER; None for Python."},
	{"faults", faults, METH_NOARGS, "faults()\n--\n\nReturn the page faults of this process."},
	{"claim_mapping", FAST(claim_mapping), "claim_mapping(loan, mapping)\n--\n\nSet the mapping of a loan, unless it has one."},
	{"address", address, METH_O, "address(array)\n--\n\nReturn the address of a contiguous array."},
	{"encode_strings", encode_strings, METH_O, "encode_strings(elements)\n--\n\nSerialise a list; None for Python."},
	{"count_strings", count_strings, METH_O, "count_strings(data)\n--\n\nCount elements; -1: incomplete length, -2: overrun."},
	{"fill_strings", FAST(fill_strings), "fill_strings(data, array)\n--\n\nFill an array of objects."},
	{0},
};

static PyModuleDef definition = {
	.m_base = {.ob_base = IMMORTAL}, .m_name = "_accelerator", .m_doc = "The compiled part of the stub.", .m_size = -1, .m_methods = functions};

static const struct {
	const char *name;
	long value;
} facts[] = {
	{"OBJECT", sizeof(PyObject)}, {"HEADER", HEADER}, {"REQUEST", REQUEST_SIZE}, {"DESCRIPTOR", DESCRIPTOR}, {"RESPONSE_HEAD", RESPONSE_SIZE},
	{"EXECUTED_HEAD", EXECUTED_SIZE}, {"TAIL_AT", TAIL_AT}, {"POSTED_AT", POSTED_AT}, {"SLEEP_AT", SLEEP_AT}, {"HEAD_AT", HEAD_AT},
	{"RING_AT", RING_AT}, {"RING_SIZE", RING_SIZE}, {"MAX_INLINE", MAX_INLINE}, {"MAX_INLINE_TOTAL", MAX_INLINE_TOTAL},
	{"INFER_HEAD", INFER_SIZE}, {"INFER", KIND_INFER}, {"EXECUTED", KIND_EXECUTED}, {"RESPONSE", KIND_RESPONSE}, {"EXECUTE_COPIES", COPIES}, {"ALL_OUTPUTS", ALL_OUTPUTS},
	{"CORRELATION_TEXT", CORRELATION_TEXT}, {"RESPONSE_PRESENT", PRESENT}, {"RESPONSE_FINAL", FINAL}, {"REGION_FRAME", REGION_FRAME},
	{"REGION_REQUESTS", REGION_REQUESTS}, {"REGION_ARENA", REGION_ARENA}, {"PAGE", PAGE}, {"SPIN_STEP_NS", SPIN_STEP_NS}, {"SLOW_YIELD_NS", SLOW_YIELD_NS}, {"LONGEST_WAIT", LONGEST_WAIT}, {"RETURNED_AT", RETURNED_AT},
	{"COLLECTED_AT", COLLECTED_AT}, {"RETURN_RING_AT", RETURN_RING_AT}, {"RETURN_RING_SLOTS", RETURN_RING_SLOTS},
};

#if FREE_THREADED
#define PyInit__accelerator PyInit__accelerator_t
#endif

__attribute__((visibility("default"))) PyObject *PyInit__accelerator(void) {
	PyObject *module = PyModule_Create2(&definition, PYTHON_ABI_VERSION);
	if (!module)
		return NULL;
#if FREE_THREADED
	if (PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED))
		return NULL;
#endif
	PyObject *rings = PyType_FromSpec(&rings_spec), *known = PyDict_New();
	gathered_type = (PyTypeObject *)PyType_FromSpec(&gathered_spec);
	if (!rings || !gathered_type || !known || PyModule_AddObject(module, "Rings", rings))
		return NULL;
	for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
		PyObject *n = PyLong_FromLong(facts[i].value), *name = PyUnicode_InternFromString(facts[i].name);
		if (!n || !name || PyDict_SetItem(known, name, n))
			return NULL;
		Py_DecRef(n);
		Py_DecRef(name);
	}
	return PyModule_AddObject(module, "facts", known) ? NULL : module;
}
