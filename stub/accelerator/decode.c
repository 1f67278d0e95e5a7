// Decoding of EXECUTE and INFER_RESPONSE, as Reader in pb_stub/batch.py does it.
//
// A frame is walked twice. The first pass checks every length, offset and index of tensors, and
// creates nothing. What it does not accept, and what is rare, is left to Python, which makes the
// error. So the loans of a frame are created once. The second pass may still find invalid UTF-8 or
// an unknown output; it raises what Python would raise.
#include "accelerator.h"

typedef struct {
	const char *bytes;
	size_t size;
	PyObject *frame, *received, *loans;
	size_t names;
} Frame;

static int open_frame(Frame *f, PyObject *frame, PyObject *received, PyObject *loans) {
	f->frame = frame;
	f->bytes = PyBytes_AsString(frame);
	if (!f->bytes)
		return 0;
	f->size = (size_t)PyBytes_Size(frame);
	f->received = received;
	f->loans = loans;
	Py_ssize_t names = PyList_Size(received);
	f->names = (size_t)names;
	return names >= 0;
}

// within tells whether count bytes at `at` are in the frame, where at may be beyond its end.
static inline int within(const Frame *f, size_t at, uint64_t count) { return at <= f->size && count <= f->size - at; }

// check_tensors checks count descriptors and sets their end; 0 for Python to decode.
static int check_tensors(const Frame *f, size_t *at, uint32_t count) {
	for (; count; count--) {
		if (!within(f, *at, DESCRIPTOR))
			return 0;
		const char *d = f->bytes + *at;
		size_t rank = (uint8_t)d[3];
		uint32_t region = u32(d + 4);
		uint64_t offset = u64(d + 8), size = u64(d + 16);
		if (u16(d) >= f->names || rank > MOST_DIMENSIONS || !within(f, *at, DESCRIPTOR + 8 * rank))
			return 0;
		if (region == REGION_FRAME ? offset > f->size || size > f->size - offset : region != REGION_REQUESTS)
			return 0;
		*at += DESCRIPTOR + 8 * rank;
	}
	return 1;
}

static PyObject *unsigned_object(uint64_t n) { return n ? PyLong_FromUnsignedLongLong(n) : kept(zero); }

// make_tensor creates the tensor of a checked descriptor.
static PyObject *make_tensor(const Frame *f, const char *d) {
	SCOPE;
	size_t rank = (uint8_t)d[3];
	uint64_t offset = u64(d + 8), size = u64(d + 16);
	PyObject *t = PyType_GenericAlloc(tensor_type, 0);
	if (!t)
		return NULL;
	PyObject *count = PyLong_FromUnsignedLongLong(size);
	fill(t, TENSOR_SIZE, count);
	if (u32(d + 4) == REGION_FRAME) {
		fill(t, TENSOR_ORIGIN, kept(f->frame));
		fill(t, TENSOR_OFFSET, PyLong_FromUnsignedLongLong(offset));
	} else {
		PyObject *loan = PyType_GenericAlloc(loan_type, 0);
		if (loan) {
			fill(loan, LOAN_LOANS, kept(f->loans));
			fill(loan, LOAN_NAME, kept(empty_text));
			fill(loan, LOAN_FAULTS, kept(zero));
			fill(loan, LOAN_MAPPING, kept(Py_None));
			fill(loan, LOAN_OFFSET, unsigned_object(offset));
			fill(loan, LOAN_SIZE, PyLong_FromUnsignedLongLong(size));
			fill(loan, LOAN_TICKET, PyLong_FromUnsignedLongLong(u64(d + 24)));
		}
		fill(t, TENSOR_ORIGIN, loan);
		fill(t, TENSOR_OFFSET, kept(zero));
	}
	fill(t, TENSOR_CODE, PyLong_FromLong((uint8_t)d[2]));
	fill(t, TENSOR_ELEMENT, unsigned_object(u32(d + 32)));
	fill(t, TENSOR_ARRAY, kept(Py_None));
	fill(t, TENSOR_DATA, kept(Py_None));
	fill(t, TENSOR_SENT, kept(Py_None));
	PyObject *name = list_item(f->received, u16(d));
	if (name)
		fill(t, TENSOR_NAME, kept(name));
	PyObject *shape = PyTuple_New((Py_ssize_t)rank);
	for (size_t i = 0; shape && i < rank; i++) {
		PyObject *n = PyLong_FromLongLong((int64_t)u64(d + DESCRIPTOR + 8 * i));
		if (!n || PyTuple_SetItem(shape, (Py_ssize_t)i, n)) {
			Py_DecRef(shape);
			shape = NULL;
		}
	}
	fill(t, TENSOR_SHAPE, shape);
	if (PyErr_Occurred()) { // no memory
		Py_DecRef(t);
		return NULL;
	}
	return t;
}

// append adds an object to a list, which keeps it, and releases it. Lists grow in this way because
// a garbage collection may show them to Python code at any allocation.
static int append(PyObject *list, PyObject *o) {
	int done = o && !PyList_Append(list, o);
	dropped(o);
	return done;
}

// make_tensors creates a list from count checked descriptors and sets their end.
static PyObject *make_tensors(const Frame *f, size_t *at, uint32_t count) {
	PyObject *list = PyList_New(0);
	for (; list && count; count--) {
		PyObject *t = make_tensor(f, f->bytes + *at);
		*at += DESCRIPTOR + 8 * (size_t)(uint8_t)f->bytes[*at + 3];
		if (!append(list, t)) {
			Py_DecRef(list);
			return NULL;
		}
	}
	return list;
}

// check_requests is the first pass over EXECUTE; 0 for Python to decode.
static int check_requests(const Frame *f) {
	if (f->size < HEADER + 8 || u32(f->bytes + HEADER + 4))
		return 0; // EXECUTE_COPIES is rare
	uint32_t count = u32(f->bytes + HEADER);
	size_t at = HEADER + 8;
	for (; count; count--) {
		if (!within(f, at, REQUEST_SIZE))
			return 0;
		const char *r = f->bytes + at;
		size_t outputs = u16(r + 30), wanted = outputs == ALL_OUTPUTS ? 0 : 2 * outputs;
		if (u32(r + 52)) // places of outputs
			return 0;
		at += REQUEST_SIZE;
		if (!check_tensors(f, &at, u16(r + 28)) || !within(f, at, wanted))
			return 0;
		at += PADDED(wanted, 8);
		uint64_t texts = (uint64_t)u32(r + 32) + u32(r + 36) + u32(r + 40) + u32(r + 44);
		if (texts && !within(f, at, texts))
			return 0;
		at += PADDED(texts, 8);
	}
	return at <= PADDED(f->size, 8);
}

static PyObject *text_of(const Frame *f, size_t *at, uint32_t size) {
	PyObject *text = PyUnicode_DecodeUTF8(f->bytes + *at, size, NULL);
	*at += size;
	return text;
}

// wanted_of returns the requested outputs of a request: a mapping of names to indices.
static PyObject *wanted_of(PyObject *reader, PyObject *all, PyObject *choices, const Frame *f, size_t *at, size_t outputs) {
	SCOPE;
	if (outputs == ALL_OUTPUTS)
		return kept(all);
	PyObject *raw = PyBytes_FromStringAndSize(f->bytes + *at, (Py_ssize_t)(2 * outputs));
	if (!raw)
		return NULL;
	*at += PADDED(2 * outputs, 8);
	PyObject *choice = dict_item(choices, raw);
	if (choice)
		Py_IncRef(choice);
	else if (!PyErr_Occurred())
		choice = PyObject_CallMethod(reader, "_choice", "O", raw); // which may send names
	Py_DecRef(raw);
	return choice;
}

// read(reader, frame, received, outputs, choices, loans) returns the requests of a batch, or None
// for Python to decode it.
PyObject *read_requests(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	Frame f;
	(void)self;
	if (!arguments(given, 6) || !open_frame(&f, args[1], args[2], args[5]))
		return NULL;
	if (!check_requests(&f))
		return kept(Py_None);
	size_t at = HEADER + 8;
	PyObject *requests = PyList_New(0), *q = NULL;
	for (uint32_t left = u32(f.bytes + HEADER); requests && left; left--) {
		const char *r = f.bytes + at;
		at += REQUEST_SIZE;
		q = PyType_GenericAlloc(request_type, 0);
		if (!q)
			goto failed;
		// An error leaves empty slots in a request that is deleted.
		PyObject *tensors = make_tensors(&f, &at, u16(r + 28));
		fill(q, REQUEST_INPUTS, tensors);
		if (!tensors)
			goto failed;
		fill(q, REQUEST_HANDLE, unsigned_object(u64(r)));
		fill(q, REQUEST_SENDER, kept(Py_None));
		fill(q, REQUEST_FLAGS, unsigned_object(u32(r + 24)));
		fill(q, REQUEST_TIMEOUT, unsigned_object(u64(r + 16)));
		fill(q, REQUEST_WANTED, wanted_of(args[0], args[3], args[4], &f, &at, u16(r + 30)));
		if (PyErr_Occurred())
			goto failed;
		uint32_t id = u32(r + 32), parameters = u32(r + 36), text = u32(r + 40), trace = u32(r + 44);
		size_t begin = at;
		fill(q, REQUEST_ID, id ? text_of(&f, &at, id) : kept(empty_text));
		if (PyErr_Occurred())
			goto failed;
		fill(q, REQUEST_PARAMETERS, parameters ? text_of(&f, &at, parameters) : kept(no_parameters));
		if (PyErr_Occurred())
			goto failed;
		if (u32(r + 48) == CORRELATION_TEXT) {
			fill(q, REQUEST_CORRELATION, text_of(&f, &at, text));
		} else {
			fill(q, REQUEST_CORRELATION, unsigned_object(u64(r + 8)));
			at += text;
		}
		if (PyErr_Occurred())
			goto failed;
		fill(q, REQUEST_TRACE, trace ? text_of(&f, &at, trace) : kept(Py_None));
		if (PyErr_Occurred())
			goto failed;
		at = begin + PADDED(at - begin, 8);
		PyObject *done = q;
		q = NULL;
		if (!append(requests, done))
			goto failed;
	}
	return requests;
failed:
	dropped(q);
	dropped(requests);
	return NULL;
}

// response(frame, at, received, loans) returns the tensors at an offset of INFER_RESPONSE and their
// end, or None for Python to decode it. The caller has the head before them.
PyObject *read_response(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	Frame f;
	(void)self;
	if (!arguments(given, 5) || !open_frame(&f, args[0], args[3], args[4]))
		return NULL;
	uint64_t at = PyLong_AsUnsignedLongLong(args[1]), count = PyLong_AsUnsignedLongLong(args[2]);
	if (PyErr_Occurred())
		return NULL;
	size_t begin = (size_t)at, end = begin;
	if (at > f.size || count > 0xFFFF || !check_tensors(&f, &end, (uint32_t)count))
		return kept(Py_None);
	PyObject *tensors = make_tensors(&f, &begin, (uint32_t)count);
	if (!tensors)
		return NULL;
	PyObject *where = PyLong_FromUnsignedLongLong(end), *pair = where ? PyTuple_Pack(2, tensors, where) : NULL;
	Py_DecRef(tensors);
	dropped(where);
	return pair;
}
