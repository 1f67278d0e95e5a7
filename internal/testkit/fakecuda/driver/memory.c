/* Memory of devices and of the host, and copies. */
#include "fake.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

struct range *ranges;

struct range *range_of(uintptr_t at) {
	struct range *found = NULL;
	for (struct range *r = ranges; r != NULL; r = r->next)
		if (at >= r->base && at - r->base < r->size && (found == NULL || found->kind == RESERVATION))
			found = r; /* a mapping before the reservation that it lies in */
	return found;
}

static size_t pages(size_t size) { return (size + 4095) & ~(size_t)4095; }

int memfd_for(int device, size_t size) {
	char name[32];
	snprintf(name, sizeof name, "fakecuda-%d", device);
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Reserves addresses and maps the bytes of fd elsewhere; of host and managed memory at those very addresses. */
struct range *add_range(enum kind kind, int device, size_t size, int fd) {
	int direct = kind == HOST || kind == MANAGED;
	struct range *r = calloc(1, sizeof *r);
	r->size = size;
	r->kind = kind;
	r->device = device;
	r->fd = fd;
	char *bytes = MAP_FAILED, *base;
	if (fd >= 0)
		bytes = mmap(NULL, pages(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (direct)
		base = bytes;
	else
		base = mmap(NULL, pages(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED || (fd >= 0 && bytes == MAP_FAILED)) {
		free(r);
		return NULL;
	}
	r->base = (uintptr_t)base;
	r->bytes = fd >= 0 ? bytes : NULL;
	r->next = ranges;
	return ranges = r;
}

void remove_range(struct range *r) {
	for (struct range **at = &ranges; *at != NULL; at = &(*at)->next)
		if (*at == r) {
			*at = r->next;
			break;
		}
	if (r->bytes != NULL)
		munmap(r->bytes, pages(r->size));
	if ((uintptr_t)r->bytes != r->base && r->kind != MAPPING)
		munmap((void *)r->base, pages(r->size));
	if (r->fd >= 0)
		close(r->fd);
	if (r->id != 0)
		dead(r->id);
	free(r);
}

static CUresult allocate(enum kind kind, CUdeviceptr *pointer, size_t size) {
	uint64_t id;
	if (size == 0)
		return INVALID_VALUE;
	int device = current()->device;
	if (live(kind, device, size, &id) != OK)
		return OUT_OF_MEMORY;
	int fd = memfd_for(device, size);
	struct range *r = fd >= 0 ? add_range(kind, device, size, fd) : NULL;
	if (r == NULL) {
		dead(id);
		return OUT_OF_MEMORY;
	}
	r->id = id;
	*pointer = r->base;
	return OK;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
	ENTER(cuMemGetInfo_v2, CURRENT);
	*total = device_bytes();
	*free_bytes = *total - used_bytes(current()->device);
	return OK;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) {
	ENTER(cuMemAlloc_v2, CURRENT);
	return allocate(ALLOCATION, pointer, size);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned flags) {
	ENTER(cuMemAllocManaged, CURRENT);
	if (flags != 1 && flags != 2)
		return INVALID_VALUE;
	return allocate(MANAGED, pointer, size);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream stream) {
	ENTER(cuMemAllocAsync, CURRENT);
	(void)stream;
	return allocate(ASYNC, pointer, size);
}

static CUresult give_back(CUdeviceptr pointer) {
	struct range *r = range_of(pointer);
	if (r == NULL || r->base != pointer || (r->kind != ALLOCATION && r->kind != MANAGED && r->kind != ASYNC)) {
		tally(T_double_free, 1);
		return INVALID_VALUE;
	}
	flush_all(&contexts[r->device]);
	if (open_elsewhere(r->id) > 0)
		tally(T_freed_while_open, 1);
	remove_range(r);
	return OK;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
	ENTER(cuMemFree_v2, CURRENT);
	return pointer == 0 ? OK : give_back(pointer);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
	ENTER(cuMemFreeAsync, CURRENT);
	(void)stream;
	return give_back(pointer);
}

EXPORT CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned flags) {
	ENTER(cuMemHostAlloc, CURRENT);
	(void)flags;
	CUdeviceptr at = 0;
	CUresult result = allocate(HOST, &at, size);
	*pointer = (void *)(uintptr_t)at;
	return result;
}

EXPORT CUresult cuMemFreeHost(void *pointer) {
	ENTER(cuMemFreeHost, CURRENT);
	struct range *r = range_of((uintptr_t)pointer);
	if (r == NULL || r->base != (uintptr_t)pointer || r->kind != HOST) {
		tally(T_double_free, 1);
		return INVALID_VALUE;
	}
	flush_all(current());
	remove_range(r);
	return OK;
}

EXPORT CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags) {
	ENTER(cuMemHostRegister_v2, CURRENT);
	(void)flags;
	struct range *r = calloc(1, sizeof *r);
	*r = (struct range){.next = ranges, .base = (uintptr_t)pointer, .size = size, .kind = REGISTERED, .fd = -1};
	live(REGISTERED, current()->device, size, &r->id);
	ranges = r;
	return OK;
}

EXPORT CUresult cuMemHostUnregister(void *pointer) {
	ENTER(cuMemHostUnregister, CURRENT);
	for (struct range **at = &ranges; *at != NULL; at = &(*at)->next) {
		struct range *r = *at;
		if (r->kind == REGISTERED && r->base == (uintptr_t)pointer) {
			flush_all(current());
			*at = r->next;
			dead(r->id);
			free(r);
			return OK;
		}
	}
	return 713; /* CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED */
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
	ENTER(cuMemGetAddressRange_v2, CURRENT);
	struct range *r = range_of(pointer);
	if (r == NULL || r->kind == HOST || r->kind == REGISTERED || r->kind == RESERVATION)
		return NOT_FOUND;
	if (base != NULL)
		*base = r->base;
	if (size != NULL)
		*size = r->size;
	return OK;
}

static CUresult attribute_of(void *data, int attribute, CUdeviceptr pointer) {
	struct range *r = range_of(pointer);
	if (r == NULL || r->kind == RESERVATION)
		return INVALID_VALUE;
	int host = r->kind == HOST || r->kind == REGISTERED;
	switch (attribute) {
	case 1: /* context; memory that was mapped belongs to none */
		*(CUcontext *)data = r->kind == MAPPING || host ? NULL : &contexts[r->device];
		return OK;
	case 2: /* memory type: host or device */
		*(unsigned *)data = host ? 1 : 2;
		return OK;
	case 3: /* device pointer */
		*(CUdeviceptr *)data = pointer;
		return OK;
	case 7: /* buffer id */
		*(unsigned long long *)data = r->id;
		return OK;
	case 8: /* managed */
		*(unsigned *)data = r->kind == MANAGED;
		return OK;
	case 9: /* device ordinal */
		*(int *)data = r->device;
		return OK;
	case 10: /* can be exported by cuIpcGetMemHandle */
		*(unsigned *)data = r->kind == ALLOCATION;
		return OK;
	case 11: /* start of the range */
		*(CUdeviceptr *)data = r->base;
		return OK;
	case 12: /* its size */
		*(size_t *)data = r->size;
		return OK;
	case 13: /* mapped */
		*(unsigned *)data = 1;
		return OK;
	case 14: /* allowed handle types */
		*(unsigned long long *)data = r->kind == MAPPING;
		return OK;
	default:
		return INVALID_VALUE;
	}
}

EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer) {
	ENTER(cuPointerGetAttribute, CURRENT);
	return attribute_of(data, attribute, pointer);
}

EXPORT CUresult cuPointerGetAttributes(unsigned n, const int *attributes, void **data, CUdeviceptr pointer) {
	ENTER(cuPointerGetAttributes, CURRENT);
	/* Unlike its sister this one accepts every pointer, and leaves what it does not know at zero. */
	for (unsigned i = 0; i < n; i++)
		if (attribute_of(data[i], attributes[i], pointer) != OK)
			*(int *)data[i] = attributes[i] == 9 ? -2 : 0;
	return OK;
}

/* Copies. */

/* The piece at an address: where its bytes are, and how many of n there are. NULL for plain memory of the host. */
static struct range *piece(uintptr_t at, size_t *n, char **bytes, CUresult *result) {
	struct range *r = range_of(at);
	*result = OK;
	if (r == NULL || r->kind == HOST || r->kind == REGISTERED) {
		*bytes = (char *)at;
		return NULL;
	}
	if (r->kind == RESERVATION || (r->kind == MAPPING && !(r->access & 1 << current()->device))) {
		*result = INVALID_VALUE;
		return NULL;
	}
	size_t left = r->size - (at - r->base);
	if (left < *n) {
		struct range *after = range_of(r->base + r->size);
		if (r->kind != MAPPING || after == NULL || after->kind != MAPPING) {
			tally(T_out_of_bounds, 1);
			*result = INVALID_VALUE;
			return NULL;
		}
		*n = left;
	}
	*bytes = r->bytes + (at - r->base);
	return r;
}

CUresult copy_bytes(uintptr_t to, uintptr_t from, size_t size) {
	while (size > 0) {
		size_t n = size;
		CUresult result;
		char *target, *source;
		struct range *into = piece(to, &n, &target, &result);
		if (result != OK)
			return result;
		struct range *out_of = piece(from, &n, &source, &result);
		if (result != OK)
			return result;
		memmove(target, source, n);
		if (into == NULL && out_of != NULL)
			tally(T_bytes_to_host, n);
		else if (into != NULL && out_of == NULL)
			tally(T_bytes_to_device, n);
		else if (into != NULL)
			tally(into->device == out_of->device ? T_bytes_on_device : T_bytes_between_devices, n);
		to += n;
		from += n;
		size -= n;
	}
	return OK;
}

static CUresult known(uintptr_t at, size_t n) {
	CUresult result;
	char *bytes;
	size_t left = n;
	struct range *r = piece(at, &left, &bytes, &result);
	if (result == OK && r == NULL)
		return INVALID_VALUE; /* no memory of a device */
	if (result == OK && r->device != current()->device)
		tally(T_wrong_context, 1);
	return result;
}

struct copy { uintptr_t to, from; size_t n; };

static void run_copy(void *what) {
	struct copy *c = what;
	if (range_of(c->to) != NULL || range_of(c->from) != NULL) /* else it was freed meanwhile */
		copy_bytes(c->to, c->from, c->n);
}

static CUresult enqueue(CUstream stream, uintptr_t to, uintptr_t from, size_t n) {
	CUresult result;
	struct stream *s = stream_of(stream, &result);
	struct copy c = {to, from, n};
	if (s != NULL)
		later(s, run_copy, &c, sizeof c);
	return result;
}

static CUresult now(uintptr_t to, uintptr_t from, size_t n) {
	flush_legacy(current());
	return copy_bytes(to, from, n);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) {
	ENTER(cuMemcpyHtoD_v2, CURRENT);
	CUresult result = n == 0 ? OK : known(to, n);
	return result != OK ? result : now(to, (uintptr_t)from, n);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) {
	ENTER(cuMemcpyDtoH_v2, CURRENT);
	CUresult result = n == 0 ? OK : known(from, n);
	return result != OK ? result : now((uintptr_t)to, from, n);
}

/* On the device nothing waits for the copy, as in the real driver. */
EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) {
	ENTER(cuMemcpyDtoD_v2, CURRENT);
	CUresult result = known(to, n);
	if (result == OK)
		result = known(from, n);
	return result != OK ? result : enqueue(NULL, to, from, n);
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
	ENTER(cuMemcpy, CURRENT);
	return now(to, from, n);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
	ENTER(cuMemcpyAsync, CURRENT);
	return enqueue(stream, to, from, n);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream stream) {
	ENTER(cuMemcpyHtoDAsync_v2, CURRENT);
	CUresult result = known(to, n);
	return result != OK ? result : enqueue(stream, to, (uintptr_t)from, n);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream stream) {
	ENTER(cuMemcpyDtoHAsync_v2, CURRENT);
	CUresult result = known(from, n);
	return result != OK ? result : enqueue(stream, (uintptr_t)to, from, n);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
	ENTER(cuMemcpyDtoDAsync_v2, CURRENT);
	CUresult result = known(to, n);
	if (result == OK)
		result = known(from, n);
	return result != OK ? result : enqueue(stream, to, from, n);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t n) {
	ENTER(cuMemcpyPeer, CURRENT);
	if (there == NULL || here == NULL || there->retained == 0 || here->retained == 0)
		return INVALID_CONTEXT;
	flush_legacy(there);
	flush_legacy(here);
	return copy_bytes(to, from, n);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t n, CUstream stream) {
	ENTER(cuMemcpyPeerAsync, CURRENT);
	if (there == NULL || here == NULL || there->retained == 0 || here->retained == 0)
		return INVALID_CONTEXT;
	return enqueue(stream, to, from, n);
}

struct fill { uintptr_t at; size_t n; unsigned char value; };

static void run_fill(void *what) {
	struct fill *f = what;
	CUresult result;
	char *bytes;
	while (f->n > 0) {
		size_t n = f->n;
		struct range *r = piece(f->at, &n, &bytes, &result);
		if (r == NULL)
			return;
		memset(bytes, f->value, n);
		f->at += n;
		f->n -= n;
	}
}

static CUresult fill(CUstream stream, CUdeviceptr at, unsigned char value, size_t n) {
	CUresult result = known(at, n);
	if (result != OK)
		return result;
	struct stream *s = stream_of(stream, &result);
	struct fill f = {at, n, value};
	if (s != NULL)
		later(s, run_fill, &f, sizeof f);
	return result;
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t n) {
	ENTER(cuMemsetD8_v2, CURRENT);
	return fill(NULL, at, value, n);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t n, CUstream stream) {
	ENTER(cuMemsetD8Async, CURRENT);
	return fill(stream, at, value, n);
}
