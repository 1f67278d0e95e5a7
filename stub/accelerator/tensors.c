// The methods of the model's API that are called for each tensor of each request. Each handles the
// usual arguments; all others go to the Python method that it replaces, which makes the errors.
#include "accelerator.h"

// Python's methods.
static PyObject *tensor_init, *tensor_as_numpy, *response_init, *input_by_name, *output_by_name;
static PyObject *name_dtype, *name_flags, *name_shape, *name_contiguous, *name_tensors, *name_load;

// otherwise calls a Python function with the same arguments, after self if that is not NULL.
static PyObject *otherwise(PyObject *function, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
	Py_ssize_t first = self ? 1 : 0, named = names ? PyTuple_Size(names) : 0;
	PyObject *positional = PyTuple_New(first + count), *keywords = NULL, *result = NULL;
	if (!positional)
		return NULL;
	if (self)
		PyTuple_SetItem(positional, 0, kept(self));
	for (Py_ssize_t i = 0; i < count; i++)
		PyTuple_SetItem(positional, first + i, kept(args[i]));
	if (named && !(keywords = PyDict_New()))
		goto done;
	for (Py_ssize_t i = 0; i < named; i++)
		if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]))
			goto done;
	result = PyObject_Call(function, positional, keywords);
done:
	Py_DecRef(positional);
	dropped(keywords);
	return result;
}

static int is_ascii(PyObject *text) {
	Py_ssize_t size;
	if (!PyUnicode_AsUTF8AndSize(text, &size)) {
		PyErr_Clear(); // lone surrogates
		return 0;
	}
	return size == PyUnicode_GetLength(text);
}

// contiguous returns array.flags.c_contiguous; -1 with an error.
static int contiguous(PyObject *array) {
	PyObject *flags = PyObject_GetAttr(array, name_flags), *is = flags ? PyObject_GetAttr(flags, name_contiguous) : NULL;
	int result = is ? is == Py_True : -1;
	dropped(flags);
	dropped(is);
	return result;
}

// Tensor.__init__(name, array)
static PyObject *init_tensor(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
	if (Py_TYPE(self) != tensor_type || count != 2 || names || Py_TYPE(args[0]) != &PyUnicode_Type || Py_TYPE(args[1]) != array_type || !PyUnicode_GetLength(args[0]) ||
	    !is_ascii(args[0]))
		return otherwise(tensor_init, self, args, count, names);
	SCOPE;
	PyObject *array = args[1], *dtype = PyObject_GetAttr(array, name_dtype);
	if (!dtype)
		return NULL;
	PyObject *code = dict_item(type_codes, dtype);
	Py_DecRef(dtype);
	if (PyErr_Occurred())
		return NULL;
	if (!code || PyLong_AsLongLong(code) == TYPE_BYTES)
		return otherwise(tensor_init, self, args, count, names);
	int whole = contiguous(array);
	if (whole < 0)
		return NULL;
	if (!whole)
		return otherwise(tensor_init, self, args, count, names);
	PyObject *shape = PyObject_GetAttr(array, name_shape);
	if (!shape)
		return NULL;
	change(self, TENSOR_NAME, kept(args[0]));
	change(self, TENSOR_CODE, kept(code));
	change(self, TENSOR_SHAPE, shape);
	change(self, TENSOR_ARRAY, kept(array));
	change(self, TENSOR_ORIGIN, kept(Py_None));
	change(self, TENSOR_SENT, kept(Py_None));
	change(self, TENSOR_DATA, kept(array));
	change(self, TENSOR_ELEMENT, kept(zero));
	return kept(Py_None);
}

// loaded makes the array of an input in a frame or a loaned block; NULL for Python, perhaps with an
// error.
static PyObject *loaded(PyObject *self) {
	SCOPE;
	PyObject *origin = slot(self, TENSOR_ORIGIN), *code = slot(self, TENSOR_CODE), *shape = slot(self, TENSOR_SHAPE);
	PyObject *offset = slot(self, TENSOR_OFFSET), *size = slot(self, TENSOR_SIZE);
	if (slot(self, TENSOR_DATA) != Py_None || !origin || !code || !shape || !offset || !size)
		return NULL;
	PyObject *dtype = PyTuple_GetItem(numpy_types, (Py_ssize_t)PyLong_AsLongLong(code));
	if (!dtype)
		return NULL;
	if (dtype == Py_None || PyLong_AsLongLong(code) == TYPE_BYTES)
		return NULL;
	if (Py_TYPE(origin) == loan_type)
		return lent_array(origin, slot(self, TENSOR_NAME), dtype, shape);
	if (Py_TYPE(origin) != &PyBytes_Type)
		return NULL;
	uint64_t at = PyLong_AsUnsignedLongLong(offset), count = PyLong_AsUnsignedLongLong(size), end = (uint64_t)PyBytes_Size(origin);
	if (PyErr_Occurred() || at > end || count > end - at)
		return NULL;
	PyObject *memory = PyByteArray_FromStringAndSize(PyBytes_AsString(origin) + at, (Py_ssize_t)count);
	if (!memory)
		return NULL;
	Py_IncRef(shape);
	PyObject *array = PyObject_CallFunctionObjArgs((PyObject *)array_type, shape, dtype, memory, NULL);
	Py_DecRef(shape);
	Py_DecRef(memory);
	return array;
}

// Tensor.as_numpy()
static PyObject *as_numpy(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
	if (Py_TYPE(self) != tensor_type || count || names)
		return otherwise(tensor_as_numpy, self, args, count, names);
	SCOPE;
	PyObject *array = slot(self, TENSOR_ARRAY);
	if (array && array != Py_None)
		return kept(array);
	array = loaded(self);
	if (!array) {
		PyErr_Clear(); // Python finds it again
		array = PyObject_CallMethodObjArgs(self, name_load, NULL);
		if (!array)
			return NULL;
	}
	// Another thread may have been here meanwhile: the first array stays.
	if (first(self, TENSOR_ARRAY, kept(array)))
		return array;
	Py_DecRef(array);
	Py_DecRef(array);
	array = slot(self, TENSOR_ARRAY);
	return kept(array ? array : Py_None);
}

// InferenceResponse.__init__(tensors) or (output_tensors=tensors)
static PyObject *init_response(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
	Py_ssize_t named = names ? PyTuple_Size(names) : 0;
	int usual = Py_TYPE(self) == response_type && count + named == 1 && Py_TYPE(args[0]) == &PyList_Type;
	if (usual && named) {
		int same = PyObject_RichCompareBool(PyTuple_GetItem(names, 0), name_tensors, 2 /* Py_EQ */);
		if (same < 0)
			return NULL;
		usual = same;
	}
	// First: another thread may change the list.
	PyObject *copy = usual ? PyList_GetSlice(args[0], 0, PyList_Size(args[0])) : NULL;
	if (usual && !copy)
		return NULL;
	Py_ssize_t tensors = usual ? PyList_Size(copy) : 0;
	for (Py_ssize_t i = 0; usual && i < tensors; i++)
		usual = Py_TYPE(PyList_GetItem(copy, i)) == tensor_type;
	if (!usual) {
		dropped(copy);
		return otherwise(response_init, self, args, count, names);
	}
	change(self, RESPONSE_OUTPUTS, copy);
	change(self, RESPONSE_ERROR_SLOT, kept(Py_None));
	change(self, RESPONSE_PARAMETERS, kept(no_parameters));
	return kept(Py_None);
}

// by_name returns the first tensor of a list with a name; NULL if Python must look.
static PyObject *by_name(PyObject *tensors, PyObject *name) {
	if (!tensors || Py_TYPE(tensors) != &PyList_Type || Py_TYPE(name) != &PyUnicode_Type)
		return NULL;
	Py_ssize_t count = PyList_Size(tensors);
	for (Py_ssize_t i = 0; i < count; i++) {
		SCOPE;
		PyObject *t = list_item(tensors, i), *own = t && Py_TYPE(t) == tensor_type ? slot(t, TENSOR_NAME) : NULL;
		if (!own || Py_TYPE(own) != &PyUnicode_Type) {
			PyErr_Clear(); // the list has become shorter
			return NULL;
		}
		if (own == name || !PyUnicode_Compare(own, name))
			return kept(t);
	}
	return kept(Py_None);
}

// get_input_tensor_by_name(inference_request, name)
static PyObject *get_input(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
	SCOPE;
	(void)self;
	PyObject *found = NULL;
	if (count == 2 && !names && Py_TYPE(args[0]) == request_type)
		found = by_name(slot(args[0], REQUEST_INPUTS), args[1]);
	return found ? found : otherwise(input_by_name, NULL, args, count, names);
}

// get_output_tensor_by_name(inference_response, name)
static PyObject *get_output(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
	SCOPE;
	(void)self;
	PyObject *found = NULL;
	if (count == 2 && !names && Py_TYPE(args[0]) == response_type)
		found = by_name(slot(args[0], RESPONSE_OUTPUTS), args[1]);
	return found ? found : otherwise(output_by_name, NULL, args, count, names);
}

#define KEYWORDS(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef init_tensor_def = {"__init__", KEYWORDS(init_tensor), "__init__($self, name, array, /)\n--\n\nMake a tensor of an array."};
static PyMethodDef as_numpy_def = {"as_numpy", KEYWORDS(as_numpy), "as_numpy($self, /)\n--\n\nReturn the tensor as an array, always the same object."};
static PyMethodDef init_response_def = {"__init__", KEYWORDS(init_response), "__init__($self, output_tensors=[], error=None, parameters=None)\n--\n\nMake a response."};
static PyMethodDef get_input_def = {
	"get_input_tensor_by_name", KEYWORDS(get_input),
	"get_input_tensor_by_name(inference_request, name)\n--\n\nReturn the first input of the request with this name, or None."};
static PyMethodDef get_output_def = {
	"get_output_tensor_by_name", KEYWORDS(get_output),
	"get_output_tensor_by_name(inference_response, name)\n--\n\nReturn the first output of the response with this name, or None."};

static PyObject *interned(PyObject **to, const char *text) { return *to = PyUnicode_InternFromString(text); }

// methods(originals) returns what replaces eight Python functions, in the order of this function.
PyObject *make_methods(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	(void)self;
	if (!arguments(given, 8) || !interned(&name_dtype, "dtype") || !interned(&name_flags, "flags") || !interned(&name_shape, "shape") ||
	    !interned(&name_contiguous, "c_contiguous") || !interned(&name_tensors, "output_tensors") ||
	    !interned(&name_load, "_load"))
		return NULL;
	tensor_init = kept(args[0]);
	tensor_as_numpy = kept(args[1]);
	response_init = kept(args[2]);
	input_by_name = kept(args[3]);
	output_by_name = kept(args[4]);
	PyObject *module = PyObject_GetAttrString(input_by_name, "__module__");
	if (!module)
		return NULL;
	PyObject *made[8] = {
		PyDescr_NewMethod(tensor_type, &init_tensor_def),     PyDescr_NewMethod(tensor_type, &as_numpy_def),
		PyDescr_NewMethod(response_type, &init_response_def), PyCFunction_NewEx(&get_input_def, NULL, module),
		PyCFunction_NewEx(&get_output_def, NULL, module),     make_loan_end(args[5]),
		make_loan_died(),                                     make_block_end(),
	};
	Py_DecRef(module);
	PyObject *all = PyTuple_New(8);
	for (int i = 0; i < 8; i++) {
		if (!all || !made[i] || PyTuple_SetItem(all, i, made[i]))
			return NULL;
	}
	return all;
}
