// Inputs in loaned blocks, as Loan and Loans in pb_stub/loans.py have them: an array over the block,
// its end, and its way into an output.
#include "accelerator.h"

static PyObject *loan_del; // Python's Loan.__del__
static PyObject *name_base, *name_foreign, *name_give_back, *name_collecting, *name_executing, *name_tickets, *name_append, *name_release;

// The page faults when they were last counted, and how many arrays will count them again. With an
// old number, the pages are inspected more often than needed, but never too rarely. After an
// inspection that was not needed, the next arrays count again: the more, the longer it took.
static long last_faults;
static uint64_t count_again;

// The arrays over loans that have died, now and when faults were last counted.
static uint64_t deaths, deaths_before;
enum { PAGES_PER_COUNT = 4, PATIENT_TICKETS = 64 };

// Guards all four without the GIL. A death that was counted came before the count of faults.
#if FREE_THREADED
static PyMutex counting;
#endif

static long count_locked(void) {
	struct rusage usage;
	if (getrusage(0 /* RUSAGE_SELF */, &usage))
		return -1;
	deaths_before = deaths;
	return last_faults = usage.minor_faults + usage.major_faults;
}

static long fault_count(void) {
	LOCK(counting);
	long count = count_locked();
	UNLOCK(counting);
	return count;
}

// faults_after returns a number of page faults that includes all by writes to dead arrays.
static long faults_after(void) {
	LOCK(counting);
	long count = last_faults > 0 && deaths == deaths_before ? last_faults : count_locked();
	UNLOCK(counting);
	return count;
}

// faults_before returns a number of page faults for a new array.
static long faults_before(void) {
	LOCK(counting);
	long count = last_faults;
	if (last_faults <= 0 || count_again) {
		count_again -= count_again > 0;
		count = count_locked();
	}
	UNLOCK(counting);
	return count;
}

// faults() returns the page faults of this process.
PyObject *faults(PyObject *self, PyObject *unused) {
	long count = fault_count();
	(void)self;
	(void)unused;
	return count < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(count);
}

// address(array) returns the address of the first byte of a contiguous array.
PyObject *address(PyObject *self, PyObject *array) {
	Py_buffer view;
	(void)self;
	if (PyObject_GetBuffer(array, &view, PyBUF_SIMPLE))
		return NULL;
	PyObject *at = PyLong_FromUnsignedLongLong((uintptr_t)view.buf);
	PyBuffer_Release(&view);
	return at;
}

// all_of_file tells whether no page of a range is private to this process, like Loans.private.
static int all_of_file(int pagemap, uint64_t address, uint64_t size) {
	const uint64_t present = 1ull << 63, swapped = 1ull << 62, of_file = 1ull << 61;
	uint64_t at = address / PAGE, left = size ? (address + size - 1) / PAGE + 1 - at : 0, entries[256];
	while (left) {
		size_t count = left < 256 ? left : 256;
		if (pread(pagemap, entries, 8 * count, (long)(8 * at)) != (ptrdiff_t)(8 * count))
			return 0;
		for (size_t i = 0; i < count; i++)
			if (entries[i] & present ? !(entries[i] & of_file) : (entries[i] & swapped) != 0)
				return 0;
		at += count;
		left -= count;
	}
	return 1;
}

// unwritten tells whether the model has not written to the array over a loan, given the page faults
// now; 0 if Python must look.
static int unwritten(PyObject *loan, long faults_now) {
	SCOPE;
	PyObject *loans = fixed(loan, LOAN_LOANS), *mapping = slot(loan, LOAN_MAPPING);
	uint64_t before, pagemap, address, start, offset, size;
	if (!mapping || Py_TYPE(mapping) != mapping_type || !unsigned_in(loan, LOAN_FAULTS, &before))
		return 0;
	if ((uint64_t)faults_now == before)
		return 1;
	if (!unsigned_in(loans, LOANS_PAGEMAP, &pagemap) || !fixed_unsigned(mapping, MAPPING_ADDRESS, &address) ||
	    !fixed_unsigned(mapping, MAPPING_START, &start) || !fixed_unsigned(loan, LOAN_OFFSET, &offset) || !fixed_unsigned(loan, LOAN_SIZE, &size) ||
	    !all_of_file((int)pagemap, address + offset - start, size))
		return 0;
	LOCK(counting);
	count_again = size / (PAGES_PER_COUNT * PAGE);
	UNLOCK(counting);
	return 1;
}

// copying tells whether the next array of an input with this name is a copy.
static int copying(PyObject *loans, PyObject *name) {
	SCOPE;
	PyObject *copies = fixed(loans, LOANS_COPYING), *left = NULL;
	if (!copies || Py_TYPE(copies) != &PyDict_Type)
		return 1;
	if (PyDict_Size(copies))
		left = dict_item(copies, name);
	return left ? PyLong_AsLongLong(left) != 0 : PyErr_Occurred() != NULL;
}

static PyObject *loan_died(PyObject *, PyObject *);
static PyMethodDef died_def = {"_died", loan_died, METH_O, NULL};

// keep_loan makes an array keep its loan.
static int keep_loan(PyObject *lent, PyObject *loan, PyObject *array) {
	PyObject *key = PyLong_FromUnsignedLongLong((uintptr_t)array), *call = key ? PyCFunction_NewEx(&died_def, loan, NULL) : NULL;
	PyObject *reference = call ? PyWeakref_NewRef(array, call) : NULL;
	int done = reference && !PyDict_SetItem(lent, key, loan);
	dropped(call);
	if (done) {
		change(loan, LOAN_KEY, key);
		change(loan, LOAN_ARRAY, reference);
		return 1;
	}
	dropped(reference);
	dropped(key);
	return 0;
}

// loan_died is called when the array over a loan is deleted.
static PyObject *loan_died(PyObject *loan, PyObject *unused) {
	(void)unused;
	LOCK(counting);
	deaths++;
	UNLOCK(counting);
	PyObject *key = fixed(loan, LOAN_KEY), *loans = fixed(loan, LOAN_LOANS), *lent = loans ? fixed(loans, LOANS_LENT) : NULL;
	if (!key || !lent || PyDict_DelItem(lent, key))
		PyErr_Clear(); // it was not kept
	return kept(Py_None);
}

// lent_array does what Loan.array does if it makes an array over the mapping; otherwise it returns
// NULL, perhaps with an error, and has changed nothing.
PyObject *lent_array(PyObject *loan, PyObject *name, PyObject *dtype, PyObject *shape) {
	SCOPE;
	PyObject *loans = fixed(loan, LOAN_LOANS), *mapped, *lent, *pagemap;
	uint64_t at, size, start;
	if (!loans || Py_TYPE(loans) != loans_type || slot(loan, LOAN_MAPPING) != Py_None || !name || Py_TYPE(name) != &PyUnicode_Type)
		return NULL;
	mapped = fixed(loans, LOANS_MAPPED);
	lent = fixed(loans, LOANS_LENT);
	pagemap = slot(loans, LOANS_PAGEMAP);
	if (!mapped || Py_TYPE(mapped) != &PyDict_Type || !lent || Py_TYPE(lent) != &PyDict_Type || !pagemap || pagemap == Py_None)
		return NULL;
	// Blocks begin at a multiple of 16, so that any element is aligned.
	if (!fixed_unsigned(loan, LOAN_OFFSET, &at) || !fixed_unsigned(loan, LOAN_SIZE, &size) || size < zero_copy_min || size > cell ||
	    at % 16 || copying(loans, name))
		return NULL;
	PyObject *key = PyLong_FromUnsignedLongLong(at / cell), *mapping = key ? dict_item(mapped, key) : NULL;
	dropped(key);
	if (!mapping || Py_TYPE(mapping) != mapping_type || !fixed_unsigned(mapping, MAPPING_START, &start) || start > at)
		return NULL;
	long count = faults_before();
	PyObject *memory = fixed(mapping, MAPPING_MAP), *offset = PyLong_FromUnsignedLongLong(at - start);
	PyObject *before = count < 0 ? NULL : PyLong_FromLong(count), *array = NULL;
	if (offset && before && memory) {
		// Kept, because a garbage collection may run Python code.
		Py_IncRef(loan);
		Py_IncRef(mapping);
		Py_IncRef(name);
		Py_IncRef(shape);
		array = PyObject_CallFunctionObjArgs((PyObject *)array_type, shape, dtype, memory, offset, NULL);
		// That, or another thread meanwhile, may have been here. Until FAULTS is set, it is zero.
		int mine = array && first(loan, LOAN_MAPPING, mapping);
		if (mine) {
			Py_IncRef(mapping);
			change(loan, LOAN_NAME, kept(name));
			change(loan, LOAN_FAULTS, kept(before));
		}
		if (array && (!mine || !keep_loan(lent, loan, array))) {
			if (mine)
				change(loan, LOAN_MAPPING, kept(Py_None));
			Py_DecRef(array);
			array = NULL;
		}
		Py_DecRef(shape);
		Py_DecRef(name);
		Py_DecRef(mapping);
		Py_DecRef(loan);
	}
	dropped(before);
	dropped(offset);
	return array;
}

// claim_mapping(loan, mapping) sets the mapping of a loan that has none, and returns whether it did.
// Of several threads, that one makes the array over the loan.
PyObject *claim_mapping(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	(void)self;
	if (!arguments(given, 2))
		return NULL;
	if (!PyType_IsSubtype(Py_TYPE(args[0]), loan_type))
		return PyErr_Format(PyExc_TypeError, "want a Loan");
	int done = first(args[0], LOAN_MAPPING, kept(args[1]));
	if (!done)
		Py_DecRef(args[1]);
	return PyBool_FromLong(done);
}

// give_back returns a ticket like Channel.give_back.
static PyObject *give_back(PyObject *channel, PyObject *ticket) {
	SCOPE;
	PyObject *collecting = PyObject_GetAttr(channel, name_collecting), *result = NULL;
	if (collecting && Py_TYPE(collecting) == &PyDict_Type) {
		PyObject *key = PyDict_Size(collecting) ? PyLong_FromUnsignedLongLong(PyThread_get_thread_ident()) : NULL;
		PyObject *collected = key ? dict_item(collecting, key) : NULL;
		dropped(key);
		if (collected && Py_TYPE(collected) == &PyList_Type && !PyList_Append(collected, ticket))
			result = kept(Py_None);
		else if (!collected && !PyErr_Occurred()) {
			PyObject *executing = PyObject_GetAttr(channel, name_executing), *tickets = PyObject_GetAttr(channel, name_tickets);
			if (executing == Py_True && tickets && PyObject_Size(tickets) < PATIENT_TICKETS)
				result = PyObject_CallMethodObjArgs(tickets, name_append, ticket, NULL);
			dropped(executing);
			dropped(tickets);
			if (FREE_THREADED && result) {
				// The batch may have ended before the ticket was there.
				executing = PyObject_GetAttr(channel, name_executing);
				if (executing != Py_True) {
					Py_DecRef(result);
					result = executing ? PyObject_CallMethodObjArgs(channel, name_release, NULL) : NULL;
				}
				dropped(executing);
				dropped(collecting);
				return result;
			}
		}
	}
	dropped(collecting);
	if (result)
		return result;
	PyErr_Clear();
	return PyObject_CallMethodObjArgs(channel, name_give_back, ticket, NULL);
}

// Loan.__del__()
static PyObject *end_loan(PyObject *self, PyObject *unused) {
	(void)unused;
	SCOPE;
	PyObject *loans = Py_TYPE(self) == loan_type ? fixed(self, LOAN_LOANS) : NULL, *mapping = slot(self, LOAN_MAPPING);
	PyObject *channel = loans && Py_TYPE(loans) == loans_type ? fixed(loans, LOANS_CHANNEL) : NULL, *ticket = fixed(self, LOAN_TICKET);
	if (channel && ticket && mapping && (mapping == Py_None || unwritten(self, faults_after()))) {
		PyObject *foreign = PyObject_GetAttr(channel, name_foreign);
		if (foreign == Py_False) {
			Py_DecRef(foreign);
			return give_back(channel, ticket);
		}
		dropped(foreign);
		PyErr_Clear();
	}
	return PyObject_CallFunctionObjArgs(loan_del, self, NULL);
}

// passed_on finds the loan whose unwritten bytes an array shows: 1, with a new Passed if they are;
// 0 if the array has its own memory; -1 for Python, perhaps with an error. Outgoing._passed does
// the same. The page faults are counted once for all tensors of a frame, before the first of them.
int passed_on(PyObject *loans, PyObject *array, const Py_buffer *view, long *faults_now, PyObject **passed) {
	SCOPE;
	PyObject *lent = Py_TYPE(loans) == loans_type ? fixed(loans, LOANS_LENT) : NULL, *shown = kept(array), *base;
	if (!lent || Py_TYPE(lent) != &PyDict_Type) {
		Py_DecRef(shown);
		return -1;
	}
	while ((base = PyObject_GetAttr(shown, name_base)) && Py_TYPE(base) == array_type) {
		Py_DecRef(shown);
		shown = base;
	}
	if (!base || PyType_IsSubtype(Py_TYPE(base), array_type)) {
		dropped(base);
		Py_DecRef(shown);
		return -1;
	}
	int own = base == Py_None;
	Py_DecRef(base);
	PyObject *key = own ? NULL : PyLong_FromUnsignedLongLong((uintptr_t)shown);
	PyObject *loan = key ? dict_item(lent, key) : NULL;
	dropped(key);
	Py_DecRef(shown);
	if (!loan)
		return PyErr_Occurred() ? -1 : 0;
	PyObject *mapping = Py_TYPE(loan) == loan_type ? slot(loan, LOAN_MAPPING) : NULL;
	uint64_t at, start, begin, size, count = (uint64_t)view->len;
	if (!mapping || Py_TYPE(mapping) != mapping_type || !fixed_unsigned(mapping, MAPPING_ADDRESS, &at) ||
	    !fixed_unsigned(mapping, MAPPING_START, &start) || !fixed_unsigned(loan, LOAN_OFFSET, &begin) || !fixed_unsigned(loan, LOAN_SIZE, &size))
		return -1;
	uint64_t offset = (uintptr_t)view->buf - at + start;
	if (!*faults_now || FREE_THREADED) // other threads write at any time
		*faults_now = fault_count();
	if (offset < begin || offset - begin > size || count > size - (offset - begin) || !unwritten(loan, *faults_now))
		return -1;
	PyObject *found = PyType_GenericAlloc(passed_type, 0);
	if (!found)
		return -1;
	fill(found, PASSED_LOAN, kept(loan));
	fill(found, PASSED_OFFSET, PyLong_FromUnsignedLongLong(offset));
	fill(found, PASSED_SIZE, PyLong_FromUnsignedLongLong(count));
	if (PyErr_Occurred()) { // no memory
		Py_DecRef(found);
		return -1;
	}
	*passed = found;
	return 1;
}

static PyMethodDef end_loan_def = {"__del__", end_loan, METH_NOARGS, "__del__($self, /)\n--\n\nReturn the loan."};

// make_loan_died returns what replaces Loan._died.
PyObject *make_loan_died(void) { return PyDescr_NewMethod(loan_type, &died_def); }

// make_loan_end returns what replaces Loan.__del__.
PyObject *make_loan_end(PyObject *python) {
	loan_del = kept(python);
	name_base = PyUnicode_InternFromString("base");
	name_foreign = PyUnicode_InternFromString("_foreign");
	name_give_back = PyUnicode_InternFromString("give_back");
	name_collecting = PyUnicode_InternFromString("_collecting");
	name_executing = PyUnicode_InternFromString("executing");
	name_tickets = PyUnicode_InternFromString("tickets");
	name_append = PyUnicode_InternFromString("append");
	name_release = PyUnicode_InternFromString("_release_tickets");
	return name_base && name_foreign && name_give_back && name_collecting && name_executing && name_tickets && name_append && name_release ? PyDescr_NewMethod(loan_type, &end_loan_def) : NULL;
}
