package repository

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/objectstore"
)

// Footprint is the state of a model's files at one time: names, sizes and times, and the contents
// of modules elsewhere. Two footprints tell whether something has changed in between, and for which
// versions.
//
// The time of a directory does not count, only its entries: Python and editors leave files beside
// those of a model that come and go and change nothing. Triton looks at the times of directories,
// and reloads a Python model because its import has created a __pycache__.
type Footprint struct {
	Config string            // the top-level entry that is or contains the configuration
	Parts  map[string]uint64 // by top-level entry; bound: the entries of the model's directory
	// Outside has files that the config names outside the model's directory, by path, or by the
	// name in mirror.Archives: the archive of an execution environment. It is usually nil.
	//
	// bound: the environment, and imports, of which Imports accepts a limited number
	Outside map[string]uint64
	// files has each source in the model's directory by relative path; nil unless only sources
	// count.
	//
	// bound: maxFootprintEntries
	files map[string]uint64
	// imported has files outside the model's directory that versions have imported, as Read found
	// them. Imports.Same compares them: another version may no longer need them.
	imported map[string]uint64
}

// maxFootprintEntries bounds the examined entries of one model; further entries count as unchanged.
const maxFootprintEntries = 1 << 20

// footprint examines the folder. Unreadable files do not count.
func (f *Folder) footprint() Footprint {
	config, _, _ := strings.Cut(f.configInUse(), string(filepath.Separator))
	p := Footprint{Config: config, Parts: make(map[string]uint64)}
	entries, err := f.list(".")
	if err != nil {
		return p
	}
	if f.sourcesAlone {
		p.files = make(map[string]uint64)
	}
	left := maxFootprintEntries
	for _, e := range entries {
		if passing(e.name) {
			continue
		}
		sum := fnv.New64a()
		switch top := filepath.Join(f.path, e.name); {
		case e.dir: // a slash follows a link
			if files := p.addDirectory(sum, top+string(filepath.Separator), e.name, &left); f.sourcesAlone && files == 0 && !isDigits(e.name) {
				continue
			}
		case f.sourcesAlone && !isSource(e.name):
			continue
		default:
			p.addSource(sum, top, "", e.name)
		}
		p.Parts[e.name] = sum.Sum64()
	}
	return p
}

// outside sums paths outside a model's directory. Only the existence of a directory counts: an
// unpacked environment is used as it is.
//
// bound: the caller's paths: imports, of which Imports accepts a limited number, and an environment
func outside(paths ...string) map[string]uint64 {
	if len(paths) == 0 {
		return nil
	}
	sums := make(map[string]uint64, len(paths))
	for _, path := range paths {
		if _, done := sums[path]; done {
			continue
		}
		sum := fnv.New64a()
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			add(sum, "directory")
		} else if extension := filepath.Ext(path); extension != ".py" && extension != ".so" || !addContent(sum, path) {
			addFile(sum, path, "")
		}
		sums[path] = sum.Sum64()
	}
	return sums
}

// maxContent bounds the files whose content is summed.
const maxContent = 1 << 20

// addContent adds the content of a file: a model that rewrites a module unchanged, at each load or
// in each instance, has not changed. It reports false and adds nothing if the path is not a file,
// or a large one.
func addContent(sum hash.Hash64, path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // do not wait for a pipe
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	content, err := io.ReadAll(io.LimitReader(f, maxContent+1)) // bound: maxContent
	if err != nil || len(content) > maxContent {
		return false
	}
	add(sum, "content", uint64(len(content)))
	_, _ = sum.Write(content)
	return true
}

// environmentOf returns the path of a model's execution environment if it is outside the model's
// directory.
func environmentOf(c *kserve.ModelConfig, directory string) []string {
	value := environmentValue(c)
	if value == "" || directory == "" && !filepath.IsAbs(value) { // of a model in a store: archiveOf
		return nil
	}
	if _, remote, _ := objectstore.Parse(value); remote {
		return nil
	}
	path, err := conda.Named(value, directory)
	if err != nil {
		return nil
	}
	if inside, err := filepath.Rel(directory, path); err == nil && filepath.IsLocal(inside) {
		return nil
	}
	return []string{path}
}

// isSource reports whether people write a file and the server or Python reads it.
func isSource(name string) bool {
	extension := filepath.Ext(name)
	return extension == ".py" || extension == ".pbtxt"
}

// addDirectory adds the files below a directory of the model, or only the sources, to sum and
// returns their number. Links to directories are not followed.
func (p *Footprint) addDirectory(sum hash.Hash64, top, name string, left *int) (files int) {
	_ = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if *left--; *left < 0 {
			return filepath.SkipAll
		}
		if err != nil || path == top {
			return nil //nolint:nilerr // unreadable files do not count
		}
		if passing(e.Name()) {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		relative := strings.TrimPrefix(path, top)
		switch {
		case p.files != nil && (e.IsDir() || !isSource(e.Name())), emptyFile4913(e):
		case e.IsDir():
			add(sum, relative, 0)
		default:
			p.addSource(sum, path, relative, filepath.Join(name, relative))
			files++
		}
		return nil
	})
	return files
}

// addSource adds a file to sum under one name, and to the files of p, if any, under another.
func (p *Footprint) addSource(sum hash.Hash64, path, name, inModel string) {
	if p.files == nil {
		addFile(sum, path, name)
		return
	}
	own := fnv.New64a()
	addFile(own, path, "")
	p.files[inModel] = own.Sum64()
	add(sum, name, own.Sum64())
}

// addFile adds a file; for a link, both the link and its target.
func addFile(sum hash.Hash64, path, name string) {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(path)
		if err != nil {
			add(sum, name, 0)
			continue
		}
		changed := int64(0)
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			changed = syscall.TimespecToNsec(s.Ctim)
		}
		add(sum, name, uint64(info.Mode().Type()), uint64(info.Size()), uint64(info.ModTime().UnixNano()), uint64(changed))
		if info.Mode()&fs.ModeSymlink == 0 {
			return
		}
	}
}

// add adds a record to sum.
//
// bound: a path and some numbers
func add(sum hash.Hash64, name string, values ...uint64) {
	record := append([]byte(name), 0)
	for _, v := range values {
		record = binary.LittleEndian.AppendUint64(record, v)
	}
	_, _ = sum.Write(record)
}

// passing reports whether a name belongs to files that come and go beside those of a model:
// Python's compiled files, and the temporary files of editors, file managers and network file
// systems.
func passing(name string) bool {
	switch name {
	case "__pycache__", ".ipynb_checkpoints", ".DS_Store":
		return true
	}
	extension := filepath.Ext(name)
	hidden := strings.HasPrefix(name, ".")
	switch {
	case strings.HasSuffix(name, "~"): // backups
	case strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#"), strings.HasPrefix(name, ".#"): // Emacs: autosaved, locks
	case strings.HasPrefix(name, ".~lock.") && strings.HasSuffix(name, "#"): // LibreOffice
	case hidden && len(extension) == 4 && strings.HasPrefix(extension, ".sw"): // Vim, nano: .swp, .swo, .swx
	case hidden && extension == ".kate-swp":
	case strings.HasPrefix(name, ".goutputstream-"), strings.HasPrefix(name, ".nfs"), strings.HasPrefix(name, ".fuse_hidden"):
	case strings.HasSuffix(name, "___jb_tmp___"), strings.HasSuffix(name, "___jb_old___"): // JetBrains
	default:
		return false
	}
	return true
}

// emptyFile4913 reports whether a file is the one by which Vim tests write access.
func emptyFile4913(e fs.DirEntry) bool {
	if e.Name() != "4913" {
		return false
	}
	info, err := e.Info()
	return err == nil && info.Size() == 0
}

// Paths are the paths of Outside.
func (p Footprint) Paths() []string { return slices.Collect(maps.Keys(p.Outside)) }

// sameOutside reports whether the paths in p.Outside are unchanged. later may cover more paths.
func (p Footprint) sameOutside(later Footprint) bool {
	for path, sum := range p.Outside {
		if other, there := later.Outside[path]; !there || other != sum {
			return false
		}
	}
	return true
}

// Same reports whether nothing has changed. later covers the Paths of p.
func (p Footprint) Same(later Footprint) bool {
	if !p.sameOutside(later) || p.Config != later.Config || len(p.Parts) != len(later.Parts) {
		return false
	}
	for name, sum := range p.Parts {
		if other, there := later.Parts[name]; !there || other != sum {
			return false
		}
	}
	return true
}

// differences lists the sources that differ or that only one footprint has. Sources in the model's
// directory have relative paths. Others have absolute paths, and are compared only if both
// footprints cover them.
//
// bound: the files of both
func (p Footprint) differences(later Footprint) (paths []string) {
	for path, sum := range p.files {
		if other, there := later.files[path]; !there || other != sum {
			paths = append(paths, path)
		}
	}
	for path := range later.files {
		if _, there := p.files[path]; !there {
			paths = append(paths, path)
		}
	}
	for path, sum := range p.Outside {
		if other, looked := later.Outside[path]; looked && other != sum {
			paths = append(paths, path)
		}
	}
	return paths
}

// SameFor reports whether nothing has changed for one version: its directory, all entries except
// other versions and the configuration, and the files outside.
func (p Footprint) SameFor(later Footprint, number int64) bool {
	if !p.sameOutside(later) {
		return false
	}
	own := strconv.FormatInt(number, 10)
	counts := func(name string) bool {
		return name == own || !isDigits(name) && name != p.Config && name != later.Config
	}
	for name, sum := range p.Parts {
		if other, there := later.Parts[name]; counts(name) && (!there || other != sum) {
			return false
		}
	}
	for name := range later.Parts {
		if _, there := p.Parts[name]; counts(name) && !there {
			return false
		}
	}
	return true
}

func isDigits(name string) bool {
	// bound: the name of a file
	return name != "" && !slices.ContainsFunc([]byte(name), func(c byte) bool { return c < '0' || c > '9' })
}
