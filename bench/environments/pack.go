package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/nereid-serving/nereid/bench/measure"
)

// content holds the files for an archive.
type content struct {
	paths []string
	sizes []int64
}

// collect finds files that are typical of environments: libraries, modules, and their compiled
// form.
func (s *settings) collect() (content, error) {
	directories := []string{s.from}
	if s.from == "" {
		python := measure.NewestPython()
		if python == "" {
			return content{}, fmt.Errorf("there is no .venvs: name a directory with files by -from")
		}
		text, err := exec.Command(python, "-c", "import sys, sysconfig; print(sysconfig.get_path('stdlib'), sysconfig.get_path('purelib'), sep='\\n')").Output()
		if err != nil {
			return content{}, fmt.Errorf("ask %s where its modules are: %w", python, err)
		}
		directories = strings.Fields(string(text))
	}
	var found content
	for _, directory := range directories {
		err := filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			found.paths = append(found.paths, path)
			found.sizes = append(found.sizes, info.Size())
			return nil
		})
		if err != nil {
			return found, err
		}
	}
	if len(found.paths) == 0 {
		return found, fmt.Errorf("%s has no files", directories)
	}
	return found, nil
}

// pack creates the archives and describes their contents. It adds the found files repeatedly, each
// time in another directory, until there are enough files. One library grows until there are enough
// bytes.
func (s *settings) pack() (string, error) {
	found, err := s.collect()
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.directory, "env.tar")
	out, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	total, files := int64(0), 0
	for next := 0; files < s.files-1 && total < s.bytes; next++ {
		i := next % len(found.paths)
		if left := int64(s.files - files); found.sizes[i] > 50*(s.bytes-total)/left {
			continue // it exceeds the rest
		}
		name := fmt.Sprintf("lib/part%d%s", next/len(found.paths), filepath.ToSlash(found.paths[i]))
		if err := add(w, name, found.paths[i], found.sizes[i]); err != nil {
			return "", err
		}
		total, files = total+found.sizes[i], files+1
	}
	if rest := s.bytes - total; rest > 0 {
		if err := addLibrary(w, found, rest); err != nil {
			return "", err
		}
		total, files = s.bytes, files+1
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	sizes, err := s.compress(out)
	return fmt.Sprintf("%d files, %d bytes; tar.gz %.0f %%, tar.zst %.0f %%", files, total, 100*float64(sizes[0])/float64(total), 100*float64(sizes[1])/float64(total)), err
}

func header(w *tar.Writer, name string, size int64) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(1_600_000_000, 0)})
}

func add(w *tar.Writer, name, path string, size int64) error {
	if err := header(w, name, size); err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.CopyN(w, in, size)
	return err
}

// addLibrary adds one file of a given size, filled with the content of the others.
func addLibrary(w *tar.Writer, found content, size int64) error {
	if err := header(w, "lib/library.so", size); err != nil {
		return err
	}
	for i := 0; size > 0; i = (i + 1) % len(found.paths) {
		in, err := os.Open(found.paths[i])
		if err != nil {
			return err
		}
		n, err := io.CopyN(w, in, min(size, found.sizes[i]))
		in.Close()
		if err != nil {
			return err
		}
		size -= n
	}
	return nil
}

// compress makes env.tar.gz and env.tar.zst from env.tar, with the default settings of conda-pack
// and of the commands.
func (s *settings) compress(plain *os.File) (sizes [2]int64, err error) {
	for i, name := range []string{"env.tar.gz", "env.tar.zst"} {
		if _, err := plain.Seek(0, io.SeekStart); err != nil {
			return sizes, err
		}
		out, err := os.Create(filepath.Join(s.directory, name))
		if err != nil {
			return sizes, err
		}
		defer out.Close()
		var w io.WriteCloser
		if i == 0 {
			w = gzip.NewWriter(out)
		} else if w, err = zstd.NewWriter(out); err != nil {
			return sizes, err
		}
		if _, err := io.Copy(w, plain); err != nil {
			return sizes, err
		}
		if err := w.Close(); err != nil {
			return sizes, err
		}
		if sizes[i], err = out.Seek(0, io.SeekCurrent); err != nil {
			return sizes, err
		}
	}
	return sizes, nil
}
