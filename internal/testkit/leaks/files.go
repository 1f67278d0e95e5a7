package leaks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// sharedMemory is the directory of shm_open's objects.
var sharedMemory = "/dev/shm"

// startNetpoll makes the runtime open the descriptors that it keeps forever after the first wait
// for one.
var startNetpoll = sync.OnceValue(func() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	return errors.Join(r.Close(), w.Close())
})

// listFiles lists the open descriptors of this process.
func listFiles(string) ([]item, error) {
	if err := startNetpoll(); err != nil {
		return nil, fmt.Errorf("list open files: %w", err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("list open files: %w", err)
	}
	var items []item
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err != nil {
			continue // it was the descriptor that ReadDir itself had open
		}
		text := entry.Name() + " -> " + target
		items = append(items, item{kind: "file", key: text, text: "descriptor " + text})
	}
	return items, nil
}

// listNames lists the objects in /dev/shm, except those used by unrelated processes: packages are
// tested in parallel.
func listNames(mark string) ([]item, error) {
	entries, err := os.ReadDir(sharedMemory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list shared memory: %w", err)
	}
	var items []item
	for _, entry := range entries {
		path := filepath.Join(sharedMemory, entry.Name())
		// Triton's objects belong to a server that runs, or ran, next to the tests.
		if !strings.HasPrefix(entry.Name(), "triton_python_backend_shm_region_") && !usedByOthers(path, mark) {
			items = append(items, item{kind: "name", key: path, text: path})
		}
	}
	return items, nil
}

// usedByOthers reports whether an unrelated process, without our mark, has path mapped or open.
func usedByOthers(path, mark string) bool {
	pids, err := processIDs()
	if err != nil {
		return false
	}
	space := make([]byte, environmentBytes)
	for _, pid := range pids {
		if pid == os.Getpid() || isMarked(pid, mark, space) {
			continue
		}
		maps, err := os.ReadFile(procPath(pid, "maps"))
		if err == nil && bytes.Contains(maps, []byte(path)) || hasOpen(pid, path) {
			return true
		}
	}
	return false
}

// hasOpen reports whether a process has a descriptor of path.
func hasOpen(pid int, path string) bool {
	directory := procPath(pid, "fd")
	entries, err := os.ReadDir(directory)
	if err != nil {
		return false // it has ended, or belongs to another user
	}
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(directory, entry.Name())); err == nil && target == path {
			return true
		}
	}
	return false
}

// listMappings lists this process's mappings of memory that could be shared
// with a stub.
func listMappings(string) ([]item, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("list mappings: %w", err)
	}
	var items []item
	for line := range strings.Lines(string(maps)) {
		// address permissions offset device inode, then the path
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		path := strings.Join(fields[5:], " ")
		if strings.Contains(path, "memfd:") || strings.Contains(path, "nereid") || strings.HasPrefix(path, sharedMemory) {
			items = append(items, item{kind: "mapping", key: fields[0] + " " + path, text: strings.TrimSpace(line)})
		}
	}
	return items, nil
}
