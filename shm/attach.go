package shm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Private maps a region copy-on-write: no other process sees this process's writes. It is for
// Attach.
const Private Access = 3

// Attach maps the whole file that another process has created. The region takes over the file, even
// after an error, and the caller holds the only reference. The other process promises that the file
// does not shrink.
func Attach(file *os.File, access Access) (*Region, error) {
	mem, err := attach(file, access)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	r := &Region{file: file, mem: mem, sealed: true}
	r.refs.Store(1)
	return r, nil
}

func attach(file *os.File, access Access) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, fmt.Errorf("ask for the size of a shared file: %w", err)
	}
	prot, flags := unix.PROT_READ, unix.MAP_SHARED
	switch access {
	case Private:
		// Without NORESERVE a system that does not overcommit counts the whole sparse file.
		prot, flags = prot|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_NORESERVE
	case ReadWrite:
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(st.Size), prot, flags)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", st.Size, err)
	}
	return mem, nil
}

// Pages reports which pages of Private regions this process has written.
type Pages struct {
	pagemap *os.File
}

// OpenPages opens the kernel's table of this process's pages.
func OpenPages() (*Pages, error) {
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil, err
	}
	return &Pages{pagemap: file}, nil
}

// Close ends the use of p.
func (p *Pages) Close() { _ = p.pagemap.Close() }

// Faults returns this process's page faults up to now: while it does not grow, no further page has
// been written.
func Faults() int64 {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return -1
	}
	// A first write to a swapped-out page is a major fault.
	return usage.Minflt + usage.Majflt
}

// Bits of a pagemap entry.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

// Written reports whether a page of [offset, offset+n) of a Private region may be this process's
// own.
func (p *Pages) Written(r *Region, offset, n uint64) bool {
	if n == 0 {
		return false
	}
	first, last := (r.address()+offset)/PageSize, (r.address()+offset+n-1)/PageSize
	var entries [512]uint64
	for first <= last {
		some := min(last-first+1, uint64(len(entries)))
		if !readEntries(int(p.pagemap.Fd()), int64(first)*8, entries[:some]) {
			return true
		}
		for _, entry := range entries[:some] {
			untouched := entry&(pagePresent|pageSwapped) == 0
			ofFile := entry&(pagePresent|pageOfFile) == pagePresent|pageOfFile
			if !untouched && !ofFile {
				return true
			}
		}
		first += some
	}
	return false
}

// Forget drops this process's own copies of the whole pages in [offset, offset+n) of a Private
// region, which then shows the file again.
func (r *Region) Forget(offset, n uint64) error {
	first, last := (offset+PageSize-1)/PageSize*PageSize, (offset+n)/PageSize*PageSize
	if first >= last {
		return nil
	}
	return unix.Madvise(r.mem[first:last], unix.MADV_DONTNEED)
}
