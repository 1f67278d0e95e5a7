// The parts of CPython's stable ABI that the accelerator uses, as of Python 3.8. With these
// declarations it is compiled without Python's headers, for any version and architecture.
//
// Source: the "Stable Application Binary Interface" in Python's documentation. Three parts entered
// it after 3.8, but have been exported and unchanged since before: Py_buffer with its two functions
// (3.11), METH_FASTCALL and PyUnicode_AsUTF8AndSize (both 3.10).
#ifndef ABI3_H
#define ABI3_H

#include <stddef.h>
#include <stdint.h>

// Whether this is for a free-threaded Python, 3.13 or 3.14. These have no stable ABI. What it is
// about here is the head of an object, and the functions at the end of this file.
#ifndef FREE_THREADED
#define FREE_THREADED 0
#endif

typedef ptrdiff_t Py_ssize_t;
typedef struct _typeobject PyTypeObject;
#if FREE_THREADED
typedef struct _object {
	uintptr_t ob_tid;
	uint16_t ob_flags;
	uint8_t ob_mutex, ob_gc_bits;
	uint32_t ob_ref_local;
	Py_ssize_t ob_ref_shared;
	PyTypeObject *ob_type;
} PyObject;
#define IMMORTAL {.ob_ref_local = UINT32_MAX}
#else
typedef struct _object {
	Py_ssize_t ob_refcnt;
	PyTypeObject *ob_type;
} PyObject;
#define IMMORTAL {.ob_refcnt = 1}
#endif

#define Py_TYPE(o) (((PyObject *)(o))->ob_type)

typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef void (*freefunc)(void *);
typedef struct {
	const char *ml_name;
	PyCFunction ml_meth;
	int ml_flags;
	const char *ml_doc;
} PyMethodDef;
#define METH_KEYWORDS 0x0002
#define METH_NOARGS 0x0004
#define METH_O 0x0008
#define METH_FASTCALL 0x0080

typedef struct {
	int slot;
	void *pfunc;
} PyType_Slot;
typedef struct {
	const char *name;
	int basicsize, itemsize;
	unsigned int flags;
	PyType_Slot *slots;
} PyType_Spec;
#define Py_TPFLAGS_DEFAULT (1u << 18)
#define Py_tp_dealloc 52
#define Py_tp_methods 64
#define Py_tp_new 65
#define Py_tp_free 74

typedef struct PyModuleDef {
	struct {
		PyObject ob_base;
		PyObject *(*m_init)(void);
		Py_ssize_t m_index;
		PyObject *m_copy;
	} m_base;
	const char *m_name, *m_doc;
	Py_ssize_t m_size;
	PyMethodDef *m_methods;
	void *m_slots, *m_traverse, *m_clear, *m_free;
} PyModuleDef;
#define PYTHON_ABI_VERSION 3

typedef struct {
	void *buf;
	PyObject *obj;
	Py_ssize_t len, itemsize;
	int readonly, ndim;
	char *format;
	Py_ssize_t *shape, *strides, *suboffsets;
	void *internal;
} Py_buffer;
#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008

extern PyTypeObject PyBytes_Type, PyDict_Type, PyList_Type, PyLong_Type, PyTuple_Type, PyUnicode_Type;
extern PyObject _Py_NoneStruct, _Py_TrueStruct, _Py_FalseStruct;
#define Py_None (&_Py_NoneStruct)
#define Py_True (&_Py_TrueStruct)
#define Py_False (&_Py_FalseStruct)
extern PyObject *PyExc_Exception, *PyExc_OSError, *PyExc_TypeError, *PyExc_ValueError;

void Py_IncRef(PyObject *), Py_DecRef(PyObject *);
PyObject *PyType_FromSpec(PyType_Spec *), *PyType_GenericAlloc(PyTypeObject *, Py_ssize_t);
void *PyType_GetSlot(PyTypeObject *, int);
PyObject *PyModule_Create2(PyModuleDef *, int);
int PyModule_AddObject(PyObject *, const char *, PyObject *);
PyObject *PyWeakref_NewRef(PyObject *, PyObject *);
PyObject *PyDescr_NewMethod(PyTypeObject *, PyMethodDef *), *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);

PyObject *PyErr_Occurred(void), *PyErr_NoMemory(void), *PyErr_SetFromErrno(PyObject *);
PyObject *PyErr_Format(PyObject *, const char *, ...);
int PyErr_ExceptionMatches(PyObject *), PyErr_CheckSignals(void);
void PyErr_Fetch(PyObject **, PyObject **, PyObject **), PyErr_Restore(PyObject *, PyObject *, PyObject *);
void PyErr_Clear(void), PyErr_SetString(PyObject *, const char *);

PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *), *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyObject_CallMethodObjArgs(PyObject *, PyObject *, ...);
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
PyObject *PyObject_GetAttr(PyObject *, PyObject *), *PyObject_GetAttrString(PyObject *, const char *);
int PyObject_SetAttrString(PyObject *, const char *, PyObject *), PyObject_RichCompareBool(PyObject *, PyObject *, int);
PyObject *PyObject_Str(PyObject *);
Py_ssize_t PyObject_Size(PyObject *);
int PyType_IsSubtype(PyTypeObject *, PyTypeObject *);
int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
void PyBuffer_Release(Py_buffer *);

PyObject *PyLong_FromUnsignedLongLong(unsigned long long), *PyLong_FromLongLong(long long), *PyLong_FromLong(long);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
long long PyLong_AsLongLong(PyObject *);
PyObject *PyBool_FromLong(long);
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
char *PyBytes_AsString(PyObject *);
Py_ssize_t PyBytes_Size(PyObject *);
PyObject *PyByteArray_FromStringAndSize(const char *, Py_ssize_t);
PyObject *PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *), *PyUnicode_AsUTF8String(PyObject *);
PyObject *PyUnicode_InternFromString(const char *);
Py_ssize_t PyUnicode_GetLength(PyObject *);
const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *);
int PyUnicode_Compare(PyObject *, PyObject *);
PyObject *PyTuple_New(Py_ssize_t), *PyTuple_GetItem(PyObject *, Py_ssize_t), *PyTuple_Pack(Py_ssize_t, ...);
Py_ssize_t PyTuple_Size(PyObject *);
int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
PyObject *PyList_New(Py_ssize_t), *PyList_GetItem(PyObject *, Py_ssize_t);
PyObject *PyList_GetSlice(PyObject *, Py_ssize_t, Py_ssize_t);
Py_ssize_t PyList_Size(PyObject *);
int PyList_SetItem(PyObject *, Py_ssize_t, PyObject *), PyList_Append(PyObject *, PyObject *);
int PyList_SetSlice(PyObject *, Py_ssize_t, Py_ssize_t, PyObject *);
PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
PyObject *PyDict_New(void);
Py_ssize_t PyDict_Size(PyObject *);
int PyDict_DelItem(PyObject *, PyObject *);
int PyDict_SetItem(PyObject *, PyObject *, PyObject *), PyDict_Next(PyObject *, Py_ssize_t *, PyObject **, PyObject **);
void *PyMem_Realloc(void *, size_t);
void PyMem_Free(void *);
unsigned long PyThread_get_thread_ident(void);
typedef struct _ts PyThreadState;
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);

// The C library that the interpreter has loaded, whichever that is.
void *memcpy(void *, const void *, size_t), *memset(void *, int, size_t);
int sched_yield(void);
ptrdiff_t write(int, const void *, size_t), pread(int, void *, size_t, long);
int *__errno_location(void);
struct timespec {
	long tv_sec, tv_nsec;
};
int clock_gettime(int, struct timespec *);
struct rusage {
	long times[4], sizes[4], minor_faults, major_faults, others[8];
};
int getrusage(int, struct rusage *);

#if FREE_THREADED
// Exported by free-threaded Pythons since 3.13.
typedef struct {
	uint8_t bits;
} PyMutex;
void PyMutex_Lock(PyMutex *), PyMutex_Unlock(PyMutex *);
typedef struct {
	uintptr_t previous;
	PyMutex *mutex;
} PyCriticalSection;
void PyCriticalSection_Begin(PyCriticalSection *, PyObject *), PyCriticalSection_End(PyCriticalSection *);
PyObject *PyList_GetItemRef(PyObject *, Py_ssize_t);
int PyDict_GetItemRef(PyObject *, PyObject *, PyObject **);
int PyUnstable_Module_SetGIL(PyObject *, void *);
#define Py_MOD_GIL_NOT_USED ((void *)1)
#endif

#endif
