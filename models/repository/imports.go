package repository

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// The files of one version that are watched outside of its model's directory, and the bytes of one path.
const (
	maxImports    = 4096
	maxImportPath = 4096
)

// Imports are the source files outside of a model's directory that the processes of one version have imported, extension
// modules (.so) wherever they lie, and files whose lack has made an import fail. The nil Imports take none and have not changed.
//
// A process reports a file right behind its import: what the file looks like then is what was imported. A later report
// changes nothing, since another process of the version may still run the code of the first.
type Imports struct {
	mu   sync.Mutex // a leaf: files are looked at without it
	sums map[string]uint64
}

// NewImports returns imports that have no file yet.
func NewImports() *Imports { return &Imports{sums: make(map[string]uint64)} }

// Add takes the paths that a process has reported and returns how many it refuses: relative paths, long ones, and those
// beyond the bound. It looks at the files, and may be called by any goroutine.
func (i *Imports) Add(paths []string) (refused int) {
	if i == nil {
		return 0
	}
	for _, path := range paths {
		if !filepath.IsAbs(path) || len(path) > maxImportPath || strings.ContainsRune(path, 0) {
			refused++
			continue
		}
		path = filepath.Clean(path)
		i.mu.Lock()
		_, known := i.sums[path]
		full := len(i.sums) >= maxImports
		i.mu.Unlock()
		switch {
		case known:
		case full:
			refused++
		default:
			sum := outside(path)[path]
			i.mu.Lock()
			if _, known := i.sums[path]; !known { // another process of the version may have been faster
				i.sums[path] = sum
			}
			i.mu.Unlock()
		}
	}
	return refused
}

// Paths are those of the files, in no order.
func (i *Imports) Paths() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.sums))
}

// Same reports whether the files that later has looked at are as they were imported.
func (i *Imports) Same(later Footprint) bool { return len(i.Changed(later)) == 0 }

// Changed are the paths, in no order, of those files that later has looked at and that are not as they were imported.
func (i *Imports) Changed(later Footprint) (paths []string) {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for path, sum := range i.sums {
		now, looked := later.Outside[path]
		if !looked {
			now, looked = later.imported[path]
		}
		if looked && now != sum {
			paths = append(paths, path)
		}
	}
	return paths
}
