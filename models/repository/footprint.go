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

// Footprint is what the files of a model looked like at one time: their names,
// sizes and times, and of modules elsewhere what is in them. Two footprints tell whether
// something has changed in between, and for which versions of the model.
//
// The time of a directory is not in it, only what the directory has: what
// Python and editors leave beside the files of a model comes and goes and
// changes nothing. Triton looks at the times of directories and loads a Python
// model anew because its import has made a __pycache__.
type Footprint struct {
	Config string            // the top-level entry that is or has the configuration
	Parts  map[string]uint64 // by top-level entry
	// Outside has what the config names outside of the model's directory, by its path, or by the name that mirror.Archives has
	// for it: the archive of an execution environment. It is nil mostly.
	Outside map[string]uint64
	// files are the sources in the model's directory, each by itself, by their paths in it, where these alone are looked at.
	files map[string]uint64
	// imported has files that versions have imported from outside of the model's directory, as Read has found them.
	// Imports.Same compares them: another version may not need them any more.
	imported map[string]uint64
}

// maxFootprintEntries bounds how many entries of one model are looked at; the entries
// behind are taken to be unchanged.
const maxFootprintEntries = 1 << 20

// footprint looks at the folder. What cannot be read does not count.
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

// outside looks at paths outside of a model's directory. Of a directory counts that it is
// one: an environment that is not packed is used as it is.
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

// maxContent bounds the bytes of a file that are looked at.
const maxContent = 1 << 20

// addContent adds what is in a file: a model that writes a module anew as it was, at each load or in each instance, has
// not changed by it. It reports false, and adds nothing, if that is no file, or a large one.
func addContent(sum hash.Hash64, path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // of a pipe nothing is waited for
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	content, err := io.ReadAll(io.LimitReader(f, maxContent+1))
	if err != nil || len(content) > maxContent {
		return false
	}
	add(sum, "content", uint64(len(content)))
	_, _ = sum.Write(content)
	return true
}

// environmentOf is where the execution environment of a model lies, if that is outside of
// its directory.
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

// isSource reports whether a file is one that people write and the server or Python reads.
func isSource(name string) bool {
	extension := filepath.Ext(name)
	return extension == ".py" || extension == ".pbtxt"
}

// addDirectory adds to sum what lies below a directory of the model, or the sources alone, and returns how many files these are. Links
// to directories are not followed.
func (p *Footprint) addDirectory(sum hash.Hash64, top, name string, left *int) (files int) {
	_ = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if *left--; *left < 0 {
			return filepath.SkipAll
		}
		if err != nil || path == top {
			return nil //nolint:nilerr // what cannot be read does not count
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

// addSource adds a file to sum by one name, and to the files of p, if p has any, by another.
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

// addFile adds a file; of a link, both itself and what it leads to.
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

func add(sum hash.Hash64, name string, values ...uint64) {
	record := append([]byte(name), 0)
	for _, v := range values {
		record = binary.LittleEndian.AppendUint64(record, v)
	}
	_, _ = sum.Write(record)
}

// passing reports whether what has that name comes and goes beside the files of
// a model: what Python compiles, and what editors, file managers and network
// file systems leave while a file is edited.
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

// emptyFile4913 reports whether a file is the one with which Vim finds out
// whether it may write.
func emptyFile4913(e fs.DirEntry) bool {
	if e.Name() != "4913" {
		return false
	}
	info, err := e.Info()
	return err == nil && info.Size() == 0
}

// Paths are those of Outside.
func (p Footprint) Paths() []string { return slices.Collect(maps.Keys(p.Outside)) }

// sameOutside reports whether what p has looked at outside of the model's directory is
// unchanged. later may have looked at more, for others.
func (p Footprint) sameOutside(later Footprint) bool {
	for path, sum := range p.Outside {
		if other, there := later.Outside[path]; !there || other != sum {
			return false
		}
	}
	return true
}

// Same reports whether nothing has changed. Later has looked at the Paths of p.
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

// differences are the sources that are in one of both footprints alone, or differ: in the model's directory by their paths in it,
// outside of it, where both have looked, by absolute paths.
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

// SameFor reports whether nothing has changed that one version is made of: its
// directory, all entries but other versions and the configuration, and what lies outside.
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
	return name != "" && !slices.ContainsFunc([]byte(name), func(c byte) bool { return c < '0' || c > '9' })
}
