// Encoding of EXECUTED and RESPONSE, as Answers in pb_stub/batch.py does it.
//
// A frame is made in two steps. `gather` encodes responses while the model's objects live. `pack`
// adds the tickets of loans, which are known when these objects are gone. Offsets of tensor bytes
// count from the first of them until then.
//
// What is not usual is left to Python: gather then returns None and has changed nothing but the
// cached encodings of tensors (`_sent`), which Python uses too.
#include "accelerator.h"

typedef struct {
	char *at;
	size_t size, room;
} Bytes;

typedef struct {
	PyObject ob_base;
	Bytes heads;  // responses and their descriptors
	Bytes inlined; // tensor bytes, each padded to 16
	uint32_t responses;
	uint64_t total; // bytes of all outputs
	int raised;     // `place_beside` has raised an exception
	long faults;    // see passed_on
} Gathered;

PyTypeObject *gathered_type;
static PyObject *name_place, *name_retract, *name_held, *name_lent, *name_loans, *name_pool;

// grow returns the place of count further bytes, or NULL with an error.
static char *grow(Bytes *b, size_t count) {
	if (b->room - b->size < count) {
		size_t room = 2 * b->room > b->size + count ? 2 * b->room : b->size + count + 256;
		char *at = PyMem_Realloc(b->at, room);
		if (!at) {
			PyErr_NoMemory();
			return NULL;
		}
		b->at = at;
		b->room = room;
	}
	b->size += count;
	return b->at + b->size - count;
}

static void gathered_dealloc(PyObject *self) {
	Gathered *g = (Gathered *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyMem_Free(g->heads.at);
	PyMem_Free(g->inlined.at);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DecRef((PyObject *)type);
}

static Gathered *new_gathered(void) { return (Gathered *)PyType_GenericAlloc(gathered_type, 0); }

// number_of returns an int in a slot; -1 if it is missing, negative or above most.
static long long number_of(PyObject *o, enum slot s, long long most) {
	SCOPE;
	PyObject *value = slot(o, s);
	long long n = value ? PyLong_AsLongLong(value) : -1;
	if (n == -1 && PyErr_Occurred())
		PyErr_Clear();
	return n <= most ? n : -1;
}

// bytes_of returns the encoding of a small tensor; NULL without an error if Python must place it.
// That of the model's own tensors stays with them.
static PyObject *bytes_of(PyObject *tensor) {
	SCOPE;
	PyObject *sent = slot(tensor, TENSOR_SENT);
	if (!sent)
		return NULL;
	if (Py_TYPE(sent) == &PyBytes_Type)
		return kept(sent);
	PyObject *data = slot(tensor, TENSOR_DATA);
	if (sent != Py_None || !data)
		return NULL;
	if (Py_TYPE(data) == &PyBytes_Type) {
		change(tensor, TENSOR_SENT, kept(data));
		return kept(data);
	}
	if (data == Py_None) { // an unchanged input
		PyObject *origin = slot(tensor, TENSOR_ORIGIN);
		long long offset = number_of(tensor, TENSOR_OFFSET, INT64_MAX), size = number_of(tensor, TENSOR_SIZE, MAX_INLINE);
		if (!origin || Py_TYPE(origin) != &PyBytes_Type || offset < 0 || size < 0)
			return NULL;
		Py_ssize_t end = PyBytes_Size(origin);
		if (offset > end || size > end - offset)
			return NULL;
		return PyBytes_FromStringAndSize(PyBytes_AsString(origin) + offset, (Py_ssize_t)size);
	}
	Py_buffer view;
	if (Py_TYPE(data) != array_type)
		return NULL;
	if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) {
		PyErr_Clear(); // not contiguous any more
		return NULL;
	}
	PyObject *copy = NULL;
	if (view.len <= MAX_INLINE)
		copy = PyBytes_FromStringAndSize(view.buf, view.len);
	PyBuffer_Release(&view);
	if (copy)
		change(tensor, TENSOR_SENT, kept(copy));
	return copy;
}

// describe writes one descriptor; 0 for Python, with or without an error.
static int describe(Gathered *g, long long index, long long code, PyObject *shape, uint32_t region, uint64_t offset,
                    uint64_t size, uint64_t ticket, uint32_t element, uint32_t mapping) {
	if (!shape || Py_TYPE(shape) != &PyTuple_Type)
		return 0;
	Py_ssize_t rank = PyTuple_Size(shape);
	if (rank > MOST_DIMENSIONS || index < 0 || index > 0xFFFF || code < 0 || code > 0xFF)
		return 0;
	char *d = grow(&g->heads, DESCRIPTOR + 8 * (size_t)rank);
	if (!d)
		return 0;
	put16(d, (uint16_t)index);
	d[2] = (char)code;
	d[3] = (char)rank;
	put32(d + 4, region);
	put64(d + 8, offset);
	put64(d + 16, size);
	put64(d + 24, ticket);
	put32(d + 32, element);
	put32(d + 36, mapping);
	for (Py_ssize_t i = 0; i < rank; i++) {
		long long n = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
		if (n == -1 && PyErr_Occurred())
			return 0;
		put64(d + DESCRIPTOR + 8 * i, (uint64_t)n);
	}
	g->total += size;
	return 1;
}

// put_inline appends a tensor whose bytes are in the frame; 0 for Python.
static int put_inline(Gathered *g, long long index, PyObject *tensor, PyObject *bytes) {
	SCOPE;
	size_t size = (size_t)PyBytes_Size(bytes), at = g->inlined.size;
	long long element = number_of(tensor, TENSOR_ELEMENT, UINT32_MAX);
	if (element < 0 || !describe(g, index, number_of(tensor, TENSOR_CODE, 0xFF), slot(tensor, TENSOR_SHAPE), REGION_FRAME, at,
	                             size, 0, (uint32_t)element, 0))
		return 0;
	size_t padded = PADDED(size, 16);
	char *to = grow(&g->inlined, padded);
	if (!to)
		return 0;
	memcpy(to, PyBytes_AsString(bytes), size);
	memset(to + size, 0, padded - size);
	return 1;
}

// put_placed appends a tensor that Python has placed; placed is outgoing.Placed. 0 for Python.
static int put_placed(Gathered *g, PyObject *tensor, PyObject *placed) {
	uint64_t n[9];
	if (Py_TYPE(placed) != &PyTuple_Type || PyTuple_Size(placed) != 9)
		return 0;
	for (int i = 0; i < 9; i++) {
		if (i == 2 || i == 4)
			continue;
		n[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(placed, i));
		if (n[i] == (uint64_t)-1 && PyErr_Occurred())
			return 0;
	}
	PyObject *bytes = PyTuple_GetItem(placed, 4);
	if (n[3] == REGION_FRAME)
		return Py_TYPE(bytes) == &PyBytes_Type && put_inline(g, (long long)n[0], tensor, bytes);
	n[4] = PyLong_AsUnsignedLongLong(bytes);
	if (n[4] == (uint64_t)-1 && PyErr_Occurred())
		return 0;
	return describe(g, (long long)n[0], (long long)n[1], PyTuple_GetItem(placed, 2), (uint32_t)n[3], n[4], n[5], n[6],
	                (uint32_t)n[7], (uint32_t)n[8]);
}

// put_described appends a tensor whose bytes are elsewhere; 0 for Python.
static int put_described(Gathered *g, long long index, PyObject *tensor, uint32_t region, uint64_t offset, uint64_t size, uint64_t ticket) {
	SCOPE;
	long long element = number_of(tensor, TENSOR_ELEMENT, UINT32_MAX);
	return element >= 0 && describe(g, index, number_of(tensor, TENSOR_CODE, 0xFF), slot(tensor, TENSOR_SHAPE), region, offset, size, ticket,
	                                (uint32_t)element, 0);
}

// put_loan appends a tensor whose bytes are in a loan, which it adds to those that outgoing holds.
static int put_loan(Gathered *g, long long index, PyObject *tensor, PyObject *outgoing, PyObject *loan, uint64_t offset, uint64_t size) {
	uint64_t ticket;
	if (!loan || Py_TYPE(loan) != loan_type || !fixed_unsigned(loan, LOAN_TICKET, &ticket))
		return 0;
	PyObject *loans = PyObject_GetAttr(outgoing, name_loans), *held = PyObject_GetAttr(outgoing, name_held);
	// Not a loan of another instance in this process.
	int done = loans && fixed(loan, LOAN_LOANS) == loans && held && Py_TYPE(held) == &PyList_Type && !PyList_Append(held, loan);
	dropped(loans);
	dropped(held);
	return done && put_described(g, index, tensor, REGION_REQUESTS, offset, size, ticket);
}

// put_block appends a tensor whose bytes it copies into a block.
static int put_block(Gathered *g, long long index, PyObject *tensor, PyObject *outgoing, const Py_buffer *view, PyObject *placed) {
	uint64_t ticket, offset;
	PyObject *pool = PyObject_GetAttr(outgoing, name_pool), *block = pool ? taken_block(pool, view, &ticket) : NULL;
	dropped(pool);
	if (!block)
		return 0;
	PyObject *lent = PyObject_GetAttr(outgoing, name_lent), *number = PyLong_FromUnsignedLongLong(ticket);
	PyObject *region = PyLong_FromLong(REGION_ARENA);
	// What `retract` needs of a Placed.
	PyObject *item = region && number ? PyTuple_Pack(7, Py_None, Py_None, Py_None, region, Py_None, Py_None, number) : NULL;
	int done = lent && Py_TYPE(lent) == &PyList_Type && item && !PyList_Append(lent, number) && !PyList_Append(placed, item) &&
	           fixed_unsigned(block, BLOCK_OFFSET, &offset);
	change(tensor, TENSOR_SENT, block);
	dropped(item);
	dropped(region);
	dropped(number);
	dropped(lent);
	return done && put_described(g, index, tensor, REGION_ARENA, offset, (uint64_t)view->len, ticket);
}

// put_beside appends a tensor whose bytes do not fit into the frame, like Outgoing.place; 0 for
// Python, perhaps with an error.
static int put_beside(Gathered *g, long long index, PyObject *tensor, PyObject *outgoing, PyObject *placed) {
	SCOPE;
	PyObject *sent = slot(tensor, TENSOR_SENT), *data = slot(tensor, TENSOR_DATA), *origin = slot(tensor, TENSOR_ORIGIN);
	uint64_t offset, size;
	if (sent && Py_TYPE(sent) == passed_type)
		return fixed_unsigned(sent, PASSED_OFFSET, &offset) && fixed_unsigned(sent, PASSED_SIZE, &size) &&
		       put_loan(g, index, tensor, outgoing, fixed(sent, PASSED_LOAN), offset, size);
	if (sent != Py_None || !data)
		return 0;
	if (data == Py_None) // an unchanged input
		return origin && Py_TYPE(origin) == loan_type && fixed_unsigned(origin, LOAN_OFFSET, &offset) && fixed_unsigned(origin, LOAN_SIZE, &size) &&
		       put_loan(g, index, tensor, outgoing, origin, offset, size);
	Py_buffer view;
	if (Py_TYPE(data) != array_type || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE))
		return 0;
	PyObject *passed = NULL, *loans = view.len > MAX_INLINE ? PyObject_GetAttr(outgoing, name_loans) : NULL;
	int found = loans ? passed_on(loans, data, &view, &g->faults, &passed) : -1, done = 0;
	if (found > 0) {
		done = fixed_unsigned(passed, PASSED_OFFSET, &offset) &&
		       put_loan(g, index, tensor, outgoing, fixed(passed, PASSED_LOAN), offset, (uint64_t)view.len);
		change(tensor, TENSOR_SENT, passed);
	} else if (!found) {
		done = put_block(g, index, tensor, outgoing, &view, placed);
		g->faults = 0; // other threads may have written meanwhile
	}
	dropped(loans);
	PyBuffer_Release(&view);
	return done;
}

// put_tensors appends the descriptors and small bytes of the first count tensors of a list, whose
// names are in indices; 0 for Python, with or without an error.
static int put_tensors(Gathered *g, PyObject *tensors, Py_ssize_t count, PyObject *indices, PyObject *outgoing, PyObject *placed) {
	for (Py_ssize_t i = 0; i < count; i++) {
		SCOPE;
		PyObject *tensor = list_item(tensors, i);
		if (!tensor || Py_TYPE(tensor) != tensor_type)
			return 0;
		PyObject *name = slot(tensor, TENSOR_NAME), *data = slot(tensor, TENSOR_DATA);
		if (!name || Py_TYPE(name) != &PyUnicode_Type || !data)
			return 0;
		if (data != Py_None && Py_TYPE(data) != array_type && Py_TYPE(data) != &PyBytes_Type)
			return 0; // memory of a device, or a subclass of numpy's array
		PyObject *index = dict_item(indices, name);
		if (!index)
			return 0; // not requested, or a new name
		long long number = PyLong_AsLongLong(index);
		PyObject *bytes = bytes_of(tensor);
		if (PyErr_Occurred()) {
			dropped(bytes);
			return 0;
		}
		if (bytes && PyBytes_Size(bytes) <= MAX_INLINE && g->inlined.size + PADDED((size_t)PyBytes_Size(bytes), 16) <= MAX_INLINE_TOTAL) {
			int put = put_inline(g, number, tensor, bytes);
			Py_DecRef(bytes);
			if (!put)
				return 0;
			continue;
		}
		dropped(bytes);
		Py_IncRef(tensor); // another thread may change the list or the mapping meanwhile
		Py_IncRef(index);
		size_t heads = g->heads.size;
		int done = put_beside(g, number, tensor, outgoing, placed);
		if (!done) {
			PyErr_Clear();
			g->heads.size = heads;
			PyObject *used = PyLong_FromUnsignedLongLong(g->inlined.size);
			PyObject *where = used ? PyObject_CallMethodObjArgs(outgoing, name_place, index, tensor, used, NULL) : NULL;
			g->raised = !where;
			done = where && !PyList_Append(placed, where) && put_placed(g, tensor, where);
			dropped(used);
			dropped(where);
		}
		Py_DecRef(index);
		Py_DecRef(tensor);
		if (!done || PyList_Size(tensors) != count)
			return 0;
	}
	return 1;
}

// parameters_of returns the text of parameters, whose size is 0 if there are none.
static const char *parameters_of(PyObject *parameters, Py_ssize_t *size) {
	const char *text = PyUnicode_AsUTF8AndSize(parameters, size);
	if (text && *size == 2 && text[0] == '{' && text[1] == '}')
		*size = 0;
	return text;
}

// put_outputs appends a response without an error. Its arguments are kept by the caller.
static int put_outputs(Gathered *g, uint64_t handle, uint32_t flags, PyObject *outputs, PyObject *parameters, PyObject *wanted,
                       PyObject *outgoing, PyObject *placed) {
	Py_ssize_t count = PyList_Size(outputs), text_size = 0;
	const char *text = parameters_of(parameters, &text_size);
	if (count > 0xFFFF || !text || text_size > 0x7FFFFFFF)
		return 0;
	char *head = grow(&g->heads, RESPONSE_SIZE);
	if (!head)
		return 0;
	memset(head, 0, RESPONSE_SIZE);
	put64(head, handle);
	put32(head + 8, flags);
	put16(head + 12, (uint16_t)count);
	put32(head + 16, (uint32_t)text_size);
	if (!put_tensors(g, outputs, count, wanted, outgoing, placed))
		return 0;
	if (text_size) {
		size_t padded = PADDED((size_t)text_size, 8);
		char *to = grow(&g->heads, padded);
		if (!to)
			return 0;
		memcpy(to, text, (size_t)text_size);
		memset(to + text_size, 0, padded - (size_t)text_size);
	}
	g->responses++;
	return 1;
}

// put_response appends a response; 0 for Python, with or without an error. placed receives what
// was placed outside the frame, to be retracted in that case.
static int put_response(Gathered *g, uint64_t handle, uint32_t flags, PyObject *response, PyObject *wanted, PyObject *outgoing,
                        PyObject *placed) {
	SCOPE;
	if (Py_TYPE(response) != response_type || slot(response, RESPONSE_ERROR_SLOT) != Py_None || Py_TYPE(wanted) != &PyDict_Type)
		return 0;
	PyObject *outputs = slot(response, RESPONSE_OUTPUTS), *parameters = slot(response, RESPONSE_PARAMETERS);
	if (!outputs || Py_TYPE(outputs) != &PyList_Type || !parameters || Py_TYPE(parameters) != &PyUnicode_Type)
		return 0;
	// Kept, because placing runs Python code, and other threads with it.
	Py_IncRef(outputs);
	Py_IncRef(parameters);
	Py_IncRef(wanted);
	int done = put_outputs(g, handle, flags, outputs, parameters, wanted, outgoing, placed);
	Py_DecRef(outputs);
	Py_DecRef(parameters);
	Py_DecRef(wanted);
	return done;
}

// give_up takes back what was placed. If `place_beside` has raised an exception, that is raised, except in
// a batch of several requests: there it is the fault of one response, and Python finds it again.
// Otherwise give_up returns None, so that Python does the work.
static PyObject *give_up(Gathered *g, int several, PyObject *placed, PyObject *outgoing) {
	int raise = g->raised && !(several && PyErr_ExceptionMatches(PyExc_Exception));
	PyObject *type, *value, *trace, *result;
	PyErr_Fetch(&type, &value, &trace);
	Py_DecRef((PyObject *)g);
	result = PyList_Size(placed) ? PyObject_CallMethodObjArgs(outgoing, name_retract, placed, NULL) : kept(Py_None);
	Py_DecRef(placed);
	if (result && raise) {
		Py_DecRef(result);
		PyErr_Restore(type, value, trace);
		return NULL;
	}
	dropped(type);
	dropped(value);
	dropped(trace);
	return result;
}

// put_name writes the index of a requested output; 0 for Python.
static int put_name(char *to, PyObject *name, PyObject *sent) {
	SCOPE;
	PyObject *index = Py_TYPE(name) == &PyUnicode_Type ? dict_item(sent, held(name)) : NULL;
	long long n = index ? PyLong_AsLongLong(index) : -1;
	if (n < 0 || n > 0xFFFF)
		return 0;
	put16(to, (uint16_t)n);
	return 1;
}

// put_names writes the indices of count requested outputs; 0 for Python.
static int put_names(char *to, Py_ssize_t count, PyObject *wanted, PyObject *sent) {
	PyObject *name, *unused;
	Py_ssize_t at = 0;
	int done = 1;
	BEGIN_SECTION(wanted);
	for (; done && PyDict_Next(wanted, &at, &name, &unused); to += 2)
		done = count-- > 0 && put_name(to, name, sent);
	END_SECTION;
	return done && !count;
}

// finish returns what was gathered.
static PyObject *finish(Gathered *g, int done, int several, PyObject *outgoing, PyObject *placed) {
	if (!done)
		return give_up(g, several, placed, outgoing);
	Py_DecRef(placed);
	return (PyObject *)g;
}

// pairs returns the number of requests and of their responses; -1 if they differ, or with an error.
static Py_ssize_t pairs(PyObject *const *args, Py_ssize_t given) {
	if (!arguments(given, 3))
		return -1;
	Py_ssize_t count = PyList_Size(args[0]);
	return count == PyList_Size(args[1]) ? count : -1;
}

// claim(requests, responses, sender) makes sender the sender of each request that has a response
// and no sender, and returns whether these are all. Senders.claim does the same.
PyObject *claim(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	(void)self;
	Py_ssize_t count = pairs(args, given);
	if (count < 0)
		return PyErr_Occurred() ? NULL : kept(Py_None);
	for (Py_ssize_t i = 0; i < count; i++) {
		SCOPE;
		PyObject *request = list_item(args[0], i);
		if (!request || Py_TYPE(request) != request_type) {
			PyErr_Clear(); // another thread has changed the list
			return kept(Py_None);
		}
	}
	int usual = 1;
	for (Py_ssize_t i = 0; i < count; i++) {
		SCOPE;
		PyObject *request = list_item(args[0], i), *response = list_item(args[1], i);
		if (!request || !response) {
			PyErr_Clear();
			return kept(Py_None);
		}
		if (Py_TYPE(request) == request_type && slot(request, REQUEST_SENDER) == Py_None && Py_TYPE(response) == response_type)
			change(request, REQUEST_SENDER, kept(args[2]));
		else
			usual = 0;
	}
	return PyBool_FromLong(usual);
}

// gather(requests, responses, outgoing) encodes the final responses to a batch.
PyObject *gather(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	(void)self;
	Py_ssize_t count = pairs(args, given);
	if (count < 0)
		return PyErr_Occurred() ? NULL : kept(Py_None);
	PyObject *placed = PyList_New(0);
	Gathered *g = placed ? new_gathered() : NULL;
	if (!g) {
		dropped(placed);
		return NULL;
	}
	int done = 1;
	for (Py_ssize_t i = 0; done && i < count; i++) {
		SCOPE;
		PyObject *request = list_item(args[0], i), *response = list_item(args[1], i);
		done = request && response && Py_TYPE(request) == request_type;
		if (!done)
			break;
		PyObject *object = slot(request, REQUEST_HANDLE), *wanted = slot(request, REQUEST_WANTED);
		uint64_t handle = object ? PyLong_AsUnsignedLongLong(object) : 0;
		done = object && wanted && !PyErr_Occurred();
		if (!done)
			break;
		Py_IncRef(response); // placing runs Python code
		done = put_response(g, handle, PRESENT | FINAL, response, wanted, args[2], placed) && PyList_Size(args[0]) == count &&
		       PyList_Size(args[1]) == count;
		Py_DecRef(response);
	}
	return finish(g, done, count > 1, args[2], placed);
}

// gather_one(handle, response, wanted, final, outgoing) encodes one response.
PyObject *gather_one(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	(void)self;
	if (!arguments(given, 5))
		return NULL;
	uint64_t handle = PyLong_AsUnsignedLongLong(args[0]);
	if (handle == (uint64_t)-1 && PyErr_Occurred())
		return NULL;
	PyObject *placed = PyList_New(0);
	Gathered *g = placed ? new_gathered() : NULL;
	if (!g) {
		dropped(placed);
		return NULL;
	}
	int done = put_response(g, handle, args[3] == Py_True ? PRESENT | FINAL : PRESENT, args[1], args[2], args[4], placed);
	return finish(g, done, 0, args[4], placed);
}

// locate adds the place of the first tensor bytes to the offsets of count descriptors; returns their
// end.
static char *locate(char *d, uint32_t count, size_t data_at) {
	for (; count; count--) {
		if (u32(d + 4) == REGION_FRAME)
			put64(d + 8, u64(d + 8) + data_at);
		d += DESCRIPTOR + 8 * (size_t)(uint8_t)d[3];
	}
	return d;
}

// put_header writes the header of a frame.
static void put_header(char *to, size_t size, uint16_t kind, uint64_t life, uint64_t ident) {
	memset(to, 0, HEADER);
	put32(to, (uint32_t)size);
	put16(to + 4, kind);
	put32(to + 8, (uint32_t)life);
	put64(to + 16, ident);
}

// assemble makes the frame: header, the head of its kind, tickets, responses, tensor bytes.
static PyObject *assemble(Gathered *g, uint16_t kind, uint64_t life, uint64_t ident, const char *head, size_t head_size, PyObject *tickets) {
	Py_ssize_t count = PyList_Size(tickets);
	if (count < 0)
		return NULL;
	size_t heads_at = HEADER + head_size + 8 * (size_t)count, data_at = PADDED(heads_at + g->heads.size, 16);
	size_t size = data_at + g->inlined.size;
	if (size > UINT32_MAX)
		return PyErr_Format(PyExc_ValueError, "a frame would have %zu bytes", size);
	PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
	if (!frame)
		return NULL;
	char *to = PyBytes_AsString(frame);
	put_header(to, size, kind, life, ident);
	memcpy(to + HEADER, head, head_size);
	for (Py_ssize_t i = 0; i < count; i++) {
		uint64_t ticket = PyLong_AsUnsignedLongLong(PyList_GetItem(tickets, i));
		if (ticket == (uint64_t)-1 && PyErr_Occurred()) {
			Py_DecRef(frame);
			return NULL;
		}
		put64(to + HEADER + head_size + 8 * i, ticket);
	}
	if (g->heads.size)
		memcpy(to + heads_at, g->heads.at, g->heads.size);
	memset(to + heads_at + g->heads.size, 0, data_at - heads_at - g->heads.size);
	if (g->inlined.size)
		memcpy(to + data_at, g->inlined.at, g->inlined.size);
	char *r = to + heads_at;
	for (uint32_t i = 0; i < g->responses; i++) {
		size_t text = PADDED((size_t)u32(r + 16), 8);
		r = locate(r + RESPONSE_SIZE, u16(r + 12), data_at) + text;
	}
	return frame;
}

// pack(life, batch, start, end, tickets) returns the EXECUTED frame.
static PyObject *gathered_pack(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	Gathered *g = (Gathered *)self;
	uint64_t n[4];
	char head[EXECUTED_SIZE];
	if (!arguments(given, 5))
		return NULL;
	for (int i = 0; i < 4; i++) {
		n[i] = PyLong_AsUnsignedLongLong(args[i]);
		if (n[i] == (uint64_t)-1 && PyErr_Occurred())
			return NULL;
	}
	put32(head, g->responses);
	put32(head + 4, 0); // STATUS_EXECUTED
	put64(head + 8, n[2]);
	put64(head + 16, n[3]);
	Py_ssize_t count = PyList_Size(args[4]);
	put32(head + 24, (uint32_t)count);
	put32(head + 28, 0);
	return assemble(g, KIND_EXECUTED, n[0], n[1], head, sizeof head, args[4]);
}

// pack_response(life, handle, tickets) returns the RESPONSE frame.
static PyObject *gathered_pack_response(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	uint64_t life, handle;
	char head[8];
	if (!arguments(given, 3))
		return NULL;
	life = PyLong_AsUnsignedLongLong(args[0]);
	handle = PyLong_AsUnsignedLongLong(args[1]);
	if (PyErr_Occurred())
		return NULL;
	Py_ssize_t count = PyList_Size(args[2]);
	put32(head, (uint32_t)count);
	put32(head + 4, 0);
	return assemble((Gathered *)self, KIND_RESPONSE, life, handle, head, sizeof head, args[2]);
}

// infer(life, number, batch, version, flags, window, memory, model, trace, request, sent,
// outgoing) returns the INFER frame of a request of the model, or None for Python. model and trace
// are bytes; sent has the indices of names.
PyObject *pack_infer(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	SCOPE;
	(void)self;
	if (!arguments(given, 12))
		return NULL;
	uint64_t n[7];
	for (int i = 0; i < 7; i++) {
		n[i] = i == 3 ? (uint64_t)PyLong_AsLongLong(args[i]) : PyLong_AsUnsignedLongLong(args[i]);
		if (n[i] == (uint64_t)-1 && PyErr_Occurred())
			return NULL;
	}
	const char *model = PyBytes_AsString(args[7]), *trace = PyBytes_AsString(args[8]);
	PyObject *request = args[9], *sent = args[10];
	if (!model || !trace)
		return NULL;
	if (Py_TYPE(request) != request_type || Py_TYPE(sent) != &PyDict_Type)
		return kept(Py_None);
	PyObject *inputs = slot(request, REQUEST_INPUTS), *wanted = slot(request, REQUEST_WANTED), *id = slot(request, REQUEST_ID);
	PyObject *parameters = slot(request, REQUEST_PARAMETERS), *correlation = slot(request, REQUEST_CORRELATION);
	if (!inputs || Py_TYPE(inputs) != &PyList_Type || !wanted || Py_TYPE(wanted) != &PyDict_Type || !id || Py_TYPE(id) != &PyUnicode_Type ||
	    !parameters || Py_TYPE(parameters) != &PyUnicode_Type || !correlation || Py_TYPE(correlation) != &PyLong_Type)
		return kept(Py_None);
	Py_ssize_t count = PyList_Size(inputs), outputs = PyDict_Size(wanted), id_size, parameters_size;
	const char *id_text = PyUnicode_AsUTF8AndSize(id, &id_size), *parameters_text = parameters_of(parameters, &parameters_size);
	uint64_t correlation_id = PyLong_AsUnsignedLongLong(correlation);
	long long flags = number_of(request, REQUEST_FLAGS, UINT32_MAX);
	PyObject *timeout_object = slot(request, REQUEST_TIMEOUT);
	uint64_t timeout = timeout_object ? PyLong_AsUnsignedLongLong(timeout_object) : 0;
	if (PyErr_Occurred() || !id_text || !parameters_text || flags < 0 || count > 0xFFFF || outputs >= ALL_OUTPUTS) {
		PyErr_Clear();
		return kept(Py_None);
	}
	size_t model_size = (size_t)PyBytes_Size(args[7]), trace_size = (size_t)PyBytes_Size(args[8]);
	size_t texts = (size_t)id_size + (size_t)parameters_size + trace_size;
	if (texts > UINT32_MAX || model_size > UINT32_MAX)
		return kept(Py_None);
	PyObject *placed = PyList_New(0), *frame = NULL;
	Gathered *g = placed ? new_gathered() : NULL;
	if (!g) {
		dropped(placed);
		return NULL;
	}
	// Kept, because placing runs Python code, and other threads with it. That the texts stay is the
	// work of their objects.
	Py_IncRef(inputs);
	Py_IncRef(wanted);
	Py_IncRef(id);
	Py_IncRef(parameters);
	int done = put_tensors(g, inputs, count, sent, args[11], placed) && PyDict_Size(wanted) == outputs;
	if (done) {
		size_t names_at = HEADER + INFER_SIZE + PADDED(model_size, 8) + REQUEST_SIZE + g->heads.size;
		size_t texts_at = names_at + PADDED(2 * (size_t)outputs, 8), end = texts_at + PADDED(texts, 8), data_at = PADDED(end, 16);
		size_t size = data_at + g->inlined.size;
		frame = size <= UINT32_MAX ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size) : NULL;
		if (frame) {
			char *to = PyBytes_AsString(frame);
			memset(to, 0, data_at);
			put_header(to, size, KIND_INFER, n[0], n[1]);
			to += HEADER;
			put64(to, n[2]);
			put64(to + 8, n[3]);
			put32(to + 16, (uint32_t)n[4]);
			put32(to + 20, (uint32_t)n[5]);
			put32(to + 24, (uint32_t)model_size);
			put32(to + 28, (uint32_t)n[6]);
			memcpy(to + INFER_SIZE, model, model_size);
			to += INFER_SIZE + PADDED(model_size, 8);
			put64(to + 8, correlation_id);
			put64(to + 16, timeout);
			put32(to + 24, (uint32_t)flags);
			put16(to + 28, (uint16_t)count);
			put16(to + 30, outputs ? (uint16_t)outputs : ALL_OUTPUTS);
			put32(to + 32, (uint32_t)id_size);
			put32(to + 36, (uint32_t)parameters_size);
			put32(to + 44, (uint32_t)trace_size);
			if (g->heads.size)
				memcpy(to + REQUEST_SIZE, g->heads.at, g->heads.size);
			locate(to + REQUEST_SIZE, (uint32_t)count, data_at);
			to = PyBytes_AsString(frame);
			if (g->inlined.size)
				memcpy(to + data_at, g->inlined.at, g->inlined.size);
			memcpy(to + texts_at, id_text, (size_t)id_size);
			memcpy(to + texts_at + id_size, parameters_text, (size_t)parameters_size);
			memcpy(to + texts_at + id_size + parameters_size, trace, trace_size);
			done = put_names(to + names_at, outputs, wanted, sent);
			if (!done) {
				Py_DecRef(frame);
				frame = NULL;
			}
		}
	}
	Py_DecRef(inputs);
	Py_DecRef(wanted);
	Py_DecRef(id);
	Py_DecRef(parameters);
	if (!frame)
		return give_up(g, 0, placed, args[11]);
	Py_DecRef((PyObject *)g);
	Py_DecRef(placed);
	return frame;
}

// make_names prepares the names of what is used of Outgoing; 0 with an error.
int make_names(void) {
	static const struct {
		PyObject **at;
		const char *name;
	} names[] = {{&name_place, "place_beside"}, {&name_retract, "retract"}, {&name_held, "_held"},
	             {&name_lent, "_lent"},         {&name_loans, "_loans"},    {&name_pool, "_pool"}};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (!(*names[i].at = PyUnicode_InternFromString(names[i].name)))
			return 0;
	return 1;
}

// size() returns the bytes of all outputs.
static PyObject *gathered_size(PyObject *self, PyObject *unused) {
	(void)unused;
	return PyLong_FromUnsignedLongLong(((Gathered *)self)->total);
}

static PyMethodDef methods[] = {
	{"pack", (PyCFunction)(void (*)(void))gathered_pack, METH_FASTCALL, "pack(life, batch, start, end, tickets)\n--\n\nMake the EXECUTED frame."},
	{"pack_response", (PyCFunction)(void (*)(void))gathered_pack_response, METH_FASTCALL, "pack_response(life, handle, tickets)\n--\n\nMake the RESPONSE frame."},
	{"size", gathered_size, METH_NOARGS, "size()\n--\n\nReturn the bytes of all outputs."},
	{0},
};

static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)gathered_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
PyType_Spec gathered_spec = {"pb_stub._accelerator.Gathered", sizeof(Gathered), 0, Py_TPFLAGS_DEFAULT, slots};
