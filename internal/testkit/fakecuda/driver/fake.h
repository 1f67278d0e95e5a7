/* A CUDA driver without a device, for tests: libcuda.so.1, strict where the real one is.
 *
 *     address that a program sees                bytes
 *     +------------------------------+           +------------------+
 *     | reserved, not accessible     |  ------>  | memfd, mapped    |
 *     +------------------------------+           | somewhere else   |
 *                                                +------------------+
 *
 * A program that forgets to copy faults, as with a device. Work that the real driver does later (asynchronous copies,
 * everything on the device) is kept in its stream until something waits for it: a program that forgets to wait, or
 * waits for the wrong stream, sees old bytes.
 *
 * One mutex guards all that a process has (ENTER takes it). What processes have in common, counts and the list of live
 * things, lies in the file that FAKECUDA_STATE names; counts are atomic, the list is guarded by a lock on that file,
 * which the kernel gives up for a process that dies.
 *
 * FAKECUDA_DEVICES  how many devices there are, 2
 * FAKECUDA_MEMORY   bytes of each, 1 GiB
 * FAKECUDA_FAIL     faults: NAME:N=CODE,...  the N-th call of NAME returns CODE; N+ means all from the N-th on
 * FAKECUDA_LOST     file; from the moment when it is there each call returns the CODE that is written in it, or never
 *                   returns ("hang"); with a number of a device behind it, calls with a context of that device alone
 * FAKECUDA_STATE    file of counts and live things; without it they are the process's own
 * FAKECUDA_INIT     "die" or "hang": what the process does in cuInit
 * FAKECUDA_OLD      number of a device whose compute capability is 5.2; that of the others is 9.0
 * FAKECUDA_ABSENT   if set, cuInit says that there is no device, until fakecuda_present is called
 */
#ifndef FAKE_H
#define FAKE_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;

enum {
	OK = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	MAP_FAILED_ = 205,
	UNSUPPORTED_LIMIT = 215,
	PEER_ACCESS_UNSUPPORTED = 217,
	INVALID_HANDLE = 400,
	NOT_FOUND = 500,
	NOT_READY = 600,
	ILLEGAL_ADDRESS = 700,
	PEER_ACCESS_ALREADY_ENABLED = 704,
	NOT_SUPPORTED = 801,
	UNKNOWN = 999,
};

enum { MOST_DEVICES = 16 };

/* Every function that is counted and may be made to fail. */
#define FUNCTIONS(F) \
	F(cuInit) F(cuDriverGetVersion) F(cuDeviceGetCount) F(cuDeviceGet) F(cuDeviceGetName) F(cuDeviceGetUuid) \
	F(cuDeviceGetUuid_v2) F(cuDeviceTotalMem_v2) F(cuDeviceGetAttribute) F(cuDeviceGetPCIBusId) \
	F(cuDeviceCanAccessPeer) F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxRelease_v2) \
	F(cuDevicePrimaryCtxGetState) F(cuDevicePrimaryCtxReset_v2) F(cuCtxPushCurrent_v2) F(cuCtxPopCurrent_v2) \
	F(cuCtxGetCurrent) F(cuCtxSetCurrent) F(cuCtxGetDevice) F(cuCtxGetId) F(cuCtxSynchronize) F(cuCtxEnablePeerAccess) \
	F(cuMemGetInfo_v2) F(cuMemAlloc_v2) F(cuMemFree_v2) F(cuMemAllocManaged) F(cuMemAllocAsync) F(cuMemFreeAsync) \
	F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemHostRegister_v2) F(cuMemHostUnregister) F(cuMemGetAddressRange_v2) \
	F(cuPointerGetAttribute) F(cuPointerGetAttributes) F(cuMemcpy) F(cuMemcpyAsync) F(cuMemcpyHtoD_v2) \
	F(cuMemcpyDtoH_v2) F(cuMemcpyDtoD_v2) F(cuMemcpyHtoDAsync_v2) F(cuMemcpyDtoHAsync_v2) F(cuMemcpyDtoDAsync_v2) \
	F(cuMemcpyPeer) F(cuMemcpyPeerAsync) F(cuMemsetD8_v2) F(cuMemsetD8Async) F(cuStreamCreate) \
	F(cuStreamCreateWithPriority) F(cuStreamDestroy_v2) F(cuStreamSynchronize) F(cuStreamQuery) F(cuStreamWaitEvent) \
	F(cuEventCreate) F(cuEventRecord) F(cuEventSynchronize) F(cuEventQuery) F(cuEventDestroy_v2) \
	F(cuIpcGetMemHandle) F(cuIpcOpenMemHandle_v2) F(cuIpcCloseMemHandle) F(cuMemGetAllocationGranularity) \
	F(cuMemCreate) F(cuMemRelease) F(cuMemExportToShareableHandle) F(cuMemImportFromShareableHandle) \
	F(cuMemAddressReserve) F(cuMemAddressFree) F(cuMemMap) F(cuMemUnmap) F(cuMemSetAccess) F(cuMemRetainAllocationHandle)

#define NUMBER(name) F_##name,
enum function { FUNCTIONS(NUMBER) MOST_FUNCTIONS };

/* What is counted besides calls. */
#define TALLIES(T) \
	T(bytes_to_host) T(bytes_to_device) T(bytes_on_device) T(bytes_between_devices) T(freed_while_open) \
	T(double_free) T(double_close) T(after_fork) T(without_context) T(wrong_context) T(out_of_bounds)
#define TALLY(name) T_##name,
enum tally { TALLIES(TALLY) MOST_TALLIES };

/* Things that live until they are given back. */
enum kind {
	ALLOCATION = 1, HOST, MANAGED, ASYNC, STREAM, EVENT, CONTEXT, OPENED, HANDLE, RESERVATION, MAPPING, REGISTERED,
};

enum need { NOTHING, INIT, CURRENT };

/* state.c: counts, faults, live things, the start of each call. */
CUresult enter(enum function f, enum need need);
void leave(int *unused);
void tally(enum tally t, uint64_t n);
CUresult live(enum kind kind, int device, uint64_t bytes, uint64_t *id); /* OUT_OF_MEMORY if the device is full */
void dead(uint64_t id);
int open_elsewhere(uint64_t id); /* how many processes that live have the allocation open */
int is_live(pid_t maker, uint64_t made); /* whether the allocation is there, and its maker lives */
void opened_from(uint64_t id, pid_t maker, uint64_t made); /* says of which allocation an OPENED thing is */
uint64_t used_bytes(int device);
uint64_t device_bytes(void);
int device_count(void);
int device_number(CUdevice d); /* of all devices, not only the visible ones */

#define ENTER(name, need) \
	int entered __attribute__((cleanup(leave), unused)) = 0; \
	{ \
		CUresult refusal = enter(F_##name, need); \
		if (refusal != OK) \
			return refusal; \
	}

/* context.c: devices, contexts, streams, events. */
struct context { int device; int retained; uint64_t id; struct stream *null; };
extern struct context contexts[MOST_DEVICES];
CUcontext current(void);

struct stream;
struct stream *stream_of(CUstream handle, CUresult *result); /* 0 and 1: the legacy default stream */
void later(struct stream *s, void (*run)(void *), void *what, size_t size); /* runs when something waits for s */
void flush(struct stream *s);
void flush_all(struct context *c);
void flush_legacy(struct context *c); /* the legacy default stream, and all that wait for it */

/* memory.c: ranges of addresses. */
struct range {
	struct range *next;
	uintptr_t base;
	size_t size;
	char *bytes;     /* where they are mapped; base itself for host and managed memory */
	enum kind kind;
	int device;
	int fd;          /* memfd, or -1 */
	uint64_t id;
	int references;  /* of an opened handle */
	pid_t maker;     /* of an opened handle */
	uint64_t made;   /* id at the maker */
	int access;      /* of a mapping: bit d for device d */
};
extern struct range *ranges;
struct range *range_of(uintptr_t at);
struct range *add_range(enum kind kind, int device, size_t size, int fd);
void remove_range(struct range *r);
CUresult copy_bytes(uintptr_t to, uintptr_t from, size_t n);
int memfd_for(int device, size_t size);

#endif
