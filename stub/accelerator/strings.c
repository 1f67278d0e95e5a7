// BYTES tensors, as c_python_backend_utils/strings.py encodes and decodes them.
#include "accelerator.h"

// encode_strings(elements) serialises a list, which it may change. Returns the bytes and, if all
// elements have the same length, that length plus 1, else 0; None for Python.
PyObject *encode_strings(PyObject *self, PyObject *elements) {
	(void)self;
	Py_ssize_t count = PyList_Size(elements);
	if (count < 0)
		return NULL;
	size_t total = 0;
	Py_ssize_t first = 0;
	int same = count > 0;
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *e = PyList_GetItem(elements, i);
		if (!e)
			return NULL;
		if (Py_TYPE(e) != &PyBytes_Type) {
			PyObject *text = Py_TYPE(e) == &PyUnicode_Type ? kept(e) : PyObject_Str(e);
			if (!text)
				return NULL;
			e = PyUnicode_AsUTF8String(text);
			Py_DecRef(text);
			if (!e || PyList_SetItem(elements, i, e))
				return NULL;
		}
		Py_ssize_t size = PyBytes_Size(e);
		if (size < 0)
			return NULL;
		if (size > (Py_ssize_t)UINT32_MAX)
			return kept(Py_None);
		if (!i)
			first = size;
		same &= size == first;
		total += 4 + (size_t)size;
	}
	PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
	if (!data)
		return NULL;
	char *to = PyBytes_AsString(data), *end = to + total;
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *e = PyList_GetItem(elements, i);
		const char *from = e ? PyBytes_AsString(e) : NULL;
		Py_ssize_t size = from ? PyBytes_Size(e) : -1;
		if (size < 0 || end - to < 4 + size) {
			Py_DecRef(data);
			if (!PyErr_Occurred())
				PyErr_SetString(PyExc_ValueError, "the list has changed");
			return NULL;
		}
		put32(to, (uint32_t)size);
		memcpy(to + 4, from, (size_t)size);
		to += 4 + size;
	}
	PyObject *element = PyLong_FromLongLong(same ? first + 1 : 0), *pair = element ? PyTuple_Pack(2, data, element) : NULL;
	Py_DecRef(data);
	dropped(element);
	return pair;
}

// count_strings(data) returns the number of elements; -1 if a length is incomplete, -2 if an element
// extends beyond the end.
PyObject *count_strings(PyObject *self, PyObject *data) {
	(void)self;
	const char *at = PyBytes_AsString(data);
	if (!at)
		return NULL;
	size_t left = (size_t)PyBytes_Size(data);
	long long count = 0;
	for (; left; count++) {
		if (left < 4)
			return PyLong_FromLong(-1);
		size_t size = u32(at);
		if (size > left - 4)
			return PyLong_FromLong(-2);
		at += 4 + size;
		left -= 4 + size;
	}
	return PyLong_FromLongLong(count);
}

// fill_strings(data, array) fills a new array of objects with the elements of checked data.
PyObject *fill_strings(PyObject *self, PyObject *const *args, Py_ssize_t given) {
	(void)self;
	Py_buffer view;
	if (!arguments(given, 2))
		return NULL;
	const char *at = PyBytes_AsString(args[0]);
	if (!at)
		return NULL;
	size_t left = (size_t)PyBytes_Size(args[0]);
	if (PyObject_GetBuffer(args[1], &view, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_ND))
		return NULL;
	if (view.itemsize != sizeof(PyObject *) || !view.format || view.format[0] != 'O') {
		PyBuffer_Release(&view);
		return PyErr_Format(PyExc_TypeError, "want an array of objects");
	}
	PyObject **to = view.buf, **end = to + view.len / view.itemsize;
	for (; left >= 4 && to < end; to++) {
		size_t size = u32(at);
		PyObject *e = size <= left - 4 ? PyBytes_FromStringAndSize(at + 4, (Py_ssize_t)size) : NULL;
		if (!e)
			break;
		PyObject *old = *to;
		*to = e;
		dropped(old);
		at += 4 + size;
		left -= 4 + size;
	}
	PyBuffer_Release(&view);
	if (PyErr_Occurred())
		return NULL;
	if (left || to != end)
		return PyErr_Format(PyExc_ValueError, "the array has another length");
	return kept(Py_None);
}
