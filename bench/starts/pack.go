package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
)

// pack writes the archive of an environment with the given python. Half of its files is noise and
// half is zeros, which compresses like a real environment.
func (s *settings) pack(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffered := bufio.NewWriter(file)
	zip, err := gzip.NewWriterLevel(buffered, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zip)
	add := func(name string, content []byte) error {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	if err := add("bin/python", fmt.Appendf(nil, "#!/bin/sh\nexec '%s' \"$@\"\n", s.python)); err != nil {
		return err
	}
	content := make([]byte, s.megabytes*1_000_000/s.files)
	chance := rand.NewChaCha8([32]byte{})
	for i := range s.files {
		_, _ = chance.Read(content[:len(content)/2]) // it never fails
		if err := add(fmt.Sprintf("lib/%d/%d", i/100, i), content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zip.Close(), buffered.Flush())
}
