/* Memory between processes: IPC handles, and allocations that are file descriptors. */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What lies in the 64 bytes of a handle. */
struct handle { char magic[8]; uint64_t pid, id, size; int32_t fd, device; char rest[24]; };
_Static_assert(sizeof(struct handle) == 64, "CUipcMemHandle has 64 bytes");
typedef struct { char bytes[64]; } CUipcMemHandle;

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
	ENTER(cuIpcGetMemHandle, CURRENT);
	struct range *r = range_of(pointer); /* of a part of an allocation: the handle of the whole */
	if (r == NULL || r->kind != ALLOCATION)
		return INVALID_VALUE;
	struct handle h = {"fakecuda", (uint64_t)getpid(), r->id, r->size, r->fd, device_number(r->device), {0}};
	memcpy(handle, &h, sizeof h);
	return OK;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags) {
	ENTER(cuIpcOpenMemHandle_v2, CURRENT);
	struct handle h;
	memcpy(&h, &handle, sizeof h);
	if (memcmp(h.magic, "fakecuda", 8) != 0 || flags != 1)
		return INVALID_VALUE;
	if (h.pid == (uint64_t)getpid())
		return INVALID_CONTEXT;
	for (struct range *r = ranges; r != NULL; r = r->next)
		if (r->kind == OPENED && r->maker == (pid_t)h.pid && r->made == h.id) {
			r->references++;
			*pointer = r->base;
			return OK;
		}
	int device = -1;
	for (int d = 0; d < device_count(); d++)
		if (device_number(d) == h.device)
			device = d;
	if (device < 0)
		return INVALID_DEVICE;
	if (!is_live((pid_t)h.pid, h.id))
		return INVALID_VALUE;
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h.pid, h.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct range *r = NULL;
	uint64_t id = 0;
	if (fd >= 0 && live(OPENED, device, h.size, &id) == OK)
		r = add_range(OPENED, device, h.size, fd);
	if (r == NULL) {
		if (id != 0)
			dead(id);
		if (fd >= 0)
			close(fd);
		return MAP_FAILED_;
	}
	opened_from(id, (pid_t)h.pid, h.id);
	r->id = id;
	r->references = 1;
	r->maker = (pid_t)h.pid;
	r->made = h.id;
	*pointer = r->base;
	return OK;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
	ENTER(cuIpcCloseMemHandle, CURRENT);
	struct range *r = range_of(pointer);
	if (r == NULL || r->base != pointer || r->kind != OPENED) {
		tally(T_double_close, 1);
		return INVALID_VALUE;
	}
	flush_all(&contexts[r->device]);
	if (--r->references == 0)
		remove_range(r);
	return OK;
}

/* Allocations without addresses, and addresses without memory. */

enum { GRANULARITY = 2 << 20, FILE_DESCRIPTOR = 1, PINNED = 1, ON_DEVICE = 1 };

struct location { int type, id; };
struct properties { int type, handles; struct location location; void *win32; unsigned char flags[8]; };
struct access { struct location location; int flags; };

struct physical { struct physical *next; int fd, device, references, exportable; size_t size; uint64_t id; };
static struct physical *physicals;

static struct physical *physical_of(unsigned long long handle) {
	for (struct physical *p = physicals; p != NULL; p = p->next)
		if ((uintptr_t)p == handle && p->references > 0)
			return p;
	return NULL;
}

static CUresult add_physical(unsigned long long *handle, int fd, int device, size_t size, int exportable, uint64_t id) {
	struct physical *p = calloc(1, sizeof *p);
	*p = (struct physical){physicals, fd, device, 1, exportable, size, id};
	physicals = p;
	*handle = (uintptr_t)p;
	return OK;
}

static CUresult check(const struct properties *p) {
	if (p->type != PINNED || p->location.type != ON_DEVICE)
		return INVALID_VALUE;
	return p->location.id >= 0 && p->location.id < device_count() ? OK : INVALID_DEVICE;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const struct properties *p, int option) {
	ENTER(cuMemGetAllocationGranularity, INIT);
	(void)option;
	*bytes = GRANULARITY;
	return check(p);
}

EXPORT CUresult cuMemCreate(unsigned long long *handle, size_t size, const struct properties *p, unsigned long long flags) {
	ENTER(cuMemCreate, INIT);
	CUresult result = check(p);
	uint64_t id;
	if (result != OK)
		return result;
	if (size == 0 || size % GRANULARITY != 0 || flags != 0)
		return INVALID_VALUE;
	if (live(HANDLE, p->location.id, size, &id) != OK)
		return OUT_OF_MEMORY;
	int fd = memfd_for(device_number(p->location.id), size);
	if (fd < 0) {
		dead(id);
		return OUT_OF_MEMORY;
	}
	return add_physical(handle, fd, p->location.id, size, p->handles & FILE_DESCRIPTOR, id);
}

EXPORT CUresult cuMemRelease(unsigned long long handle) {
	ENTER(cuMemRelease, INIT);
	struct physical *p = physical_of(handle);
	if (p == NULL) {
		tally(T_double_free, 1);
		return INVALID_VALUE;
	}
	if (--p->references == 0) {
		close(p->fd);
		dead(p->id);
		for (struct physical **at = &physicals; *at != NULL; at = &(*at)->next)
			if (*at == p) {
				*at = p->next;
				break;
			}
		free(p);
	}
	return OK;
}

EXPORT CUresult cuMemExportToShareableHandle(void *fd, unsigned long long handle, int type, unsigned long long flags) {
	ENTER(cuMemExportToShareableHandle, INIT);
	struct physical *p = physical_of(handle);
	if (p == NULL || type != FILE_DESCRIPTOR || !p->exportable || flags != 0)
		return INVALID_VALUE;
	*(int *)fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
	return *(int *)fd >= 0 ? OK : OUT_OF_MEMORY;
}

EXPORT CUresult cuMemImportFromShareableHandle(unsigned long long *handle, void *os_handle, int type) {
	ENTER(cuMemImportFromShareableHandle, INIT);
	char path[64], name[64] = "";
	struct stat about;
	int number, device = -1, fd = (int)(intptr_t)os_handle;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (type != FILE_DESCRIPTOR || fstat(fd, &about) != 0 || readlink(path, name, sizeof name - 1) < 0)
		return INVALID_VALUE;
	if (sscanf(name, "/memfd:fakecuda-%d", &number) != 1)
		return INVALID_VALUE;
	for (int d = 0; d < device_count(); d++)
		if (device_number(d) == number)
			device = d;
	if (device < 0)
		return INVALID_DEVICE;
	uint64_t id;
	if (live(OPENED, device, (uint64_t)about.st_size, &id) != OK)
		return OUT_OF_MEMORY;
	return add_physical(handle, fcntl(fd, F_DUPFD_CLOEXEC, 0), device, (size_t)about.st_size, 1, id);
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags) {
	ENTER(cuMemAddressReserve, INIT);
	(void)alignment;
	(void)wish;
	if (size == 0 || size % GRANULARITY != 0 || flags != 0)
		return INVALID_VALUE;
	struct range *r = add_range(RESERVATION, 0, size, -1);
	if (r == NULL)
		return OUT_OF_MEMORY;
	live(RESERVATION, 0, size, &r->id);
	*pointer = r->base;
	return OK;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) {
	ENTER(cuMemAddressFree, INIT);
	for (struct range *r = ranges; r != NULL; r = r->next)
		if (r->kind == MAPPING && r->base >= pointer && r->base < pointer + size)
			return INVALID_VALUE;
	struct range *r = range_of(pointer);
	if (r == NULL || r->kind != RESERVATION || r->base != pointer || r->size != size) {
		tally(T_double_free, 1);
		return INVALID_VALUE;
	}
	remove_range(r);
	return OK;
}

EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, unsigned long long handle, unsigned long long flags) {
	ENTER(cuMemMap, INIT);
	struct physical *p = physical_of(handle);
	struct range *r = range_of(pointer);
	if (p == NULL || r == NULL || r->kind != RESERVATION || size != p->size || offset != 0 || flags != 0)
		return INVALID_VALUE;
	if (pointer - r->base > r->size - size)
		return INVALID_VALUE;
	char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
	if (bytes == MAP_FAILED)
		return OUT_OF_MEMORY;
	struct range *m = calloc(1, sizeof *m);
	*m = (struct range){.next = ranges, .base = pointer, .size = size, .bytes = bytes, .kind = MAPPING,
			    .device = p->device, .fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0)};
	live(MAPPING, p->device, size, &m->id);
	ranges = m;
	return OK;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
	ENTER(cuMemUnmap, INIT);
	int found = 0;
	for (struct range **at = &ranges; *at != NULL;) {
		struct range *r = *at;
		if (r->kind == MAPPING && r->base >= pointer && r->base + r->size <= pointer + size) {
			flush_all(&contexts[r->device]);
			remove_range(r);
			found = 1;
		} else {
			at = &r->next;
		}
	}
	if (!found)
		tally(T_double_close, 1);
	return found ? OK : INVALID_VALUE;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const struct access *list, size_t n) {
	ENTER(cuMemSetAccess, INIT);
	int found = 0;
	for (struct range *r = ranges; r != NULL; r = r->next)
		if (r->kind == MAPPING && r->base >= pointer && r->base + r->size <= pointer + size) {
			found = 1;
			for (size_t i = 0; i < n; i++) {
				int bit = 1 << list[i].location.id;
				r->access = list[i].flags != 0 ? r->access | bit : r->access & ~bit;
			}
		}
	return found ? OK : INVALID_VALUE;
}

EXPORT CUresult cuMemRetainAllocationHandle(unsigned long long *handle, void *pointer) {
	ENTER(cuMemRetainAllocationHandle, INIT);
	struct range *r = range_of((uintptr_t)pointer);
	struct stat mapped, about;
	if (r == NULL || r->kind != MAPPING || fstat(r->fd, &mapped) != 0)
		return INVALID_VALUE;
	for (struct physical *p = physicals; p != NULL; p = p->next)
		if (fstat(p->fd, &about) == 0 && about.st_ino == mapped.st_ino) {
			p->references++;
			*handle = (uintptr_t)p;
			return OK;
		}
	return INVALID_VALUE;
}
