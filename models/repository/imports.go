package repository

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Bounds of the watched files of one version outside its model's directory, and of the bytes of one
// path.
const (
	maxImports    = 4096
	maxImportPath = 4096
)

// Imports are the source files outside the model's directory that the processes of one version have
// imported, extension modules (.so) anywhere, and missing files that made an import fail. Nil
// Imports accept no file and never change.
//
// A process reports a file right after its import: the file's state then is the imported one. A
// later report changes nothing, since another process of the version may still run the older code.
type Imports struct {
	mu   sync.Mutex        // a leaf: files are looked at without it
	sums map[string]uint64 // bound: maxImports with maxImportPath bytes each
}

// NewImports returns empty imports.
func NewImports() *Imports { return &Imports{sums: make(map[string]uint64)} }

// Add records the paths that a process has reported and returns the number of refused ones:
// relative or long paths, and those beyond the bound. It reads the files, and may be called by any
// goroutine.
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

// Paths lists the files, unordered.
func (i *Imports) Paths() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.sums))
}

// Same reports whether the files covered by later are as they were imported.
func (i *Imports) Same(later Footprint) bool { return len(i.Changed(later)) == 0 }

// Changed lists, unordered, the files covered by later that differ from the imported ones.
//
// bound: maxImports
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
