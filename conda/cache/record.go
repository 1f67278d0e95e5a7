package cache

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
)

// record says which environment a digest has. An environment is complete when its record has its
// name.
type record struct {
	Name        string    `json:"name"`
	Digest      string    `json:"digest"`
	Source      string    `json:"source"`                // path of the archive or key of Build, for people
	Fingerprint string    `json:"fingerprint,omitempty"` // of the archive
	Modified    int64     `json:"modified,omitempty"`    // the archive's mtime in seconds, as layers of images keep it
	Bytes       int64     `json:"bytes"`
	Files       int64     `json:"files"`
	Created     time.Time `json:"created"`
}

// recordKey is the name of a digest's record. An environment works only at one path, so a cache
// that is mounted at two paths has two records for it.
func (s *store) recordKey(digest string) string { return digest + "." + s.pathKey + ".json" }

// record returns the readable record of a digest, or nil.
func (s *store) record(digest string) (*record, error) {
	return s.readRecord(s.recordKey(digest))
}

func (s *store) readRecord(key string) (*record, error) {
	text, err := os.ReadFile(s.path(recordsDir, key)) // bound: what writeRecord writes
	if s.hides(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	// A damaged record counts as missing: its environment is swept and made again.
	// bound: its text
	if json.Unmarshal(text, &r) != nil || !environmentName.MatchString(r.Name) || !strings.HasPrefix(key, r.Digest+".") {
		return nil, nil
	}
	return &r, nil
}

// records returns all records by key, including those of other paths.
func (s *store) records() (map[string]*record, error) {
	names, err := s.names(recordsDir)
	if err != nil {
		return nil, err
	}
	all := make(map[string]*record, len(names)) // bound: mostEnvironments
	for _, key := range names {
		r, err := s.readRecord(key)
		if err != nil {
			return nil, err
		}
		if r != nil {
			all[key] = r
		}
	}
	return all, nil
}

// hides reports whether a read error means that nothing is there for this user: no file, or a file
// in another user's cache that is closed to this one.
func (s *store) hides(err error) bool {
	return isAbsent(err) || !s.writable && errors.Is(err, fs.ErrPermission)
}

// names lists a directory of the store; a missing one is empty.
func (s *store) names(elements ...string) ([]string, error) {
	dir, err := os.Open(s.path(elements...))
	if s.hides(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// twin returns a complete environment of an archive with this fingerprint, or nil.
func (s *store) twin(fingerprint string) (*record, error) {
	all, err := s.records()
	if err != nil {
		return nil, err
	}
	for key, r := range all {
		if r.Fingerprint == fingerprint && key == s.recordKey(r.Digest) {
			return r, nil
		}
	}
	return nil, nil
}

func (s *store) writeRecord(r *record) error {
	text, err := json.Marshal(r) // bound: a path, or a key of Build
	if err != nil {
		return err
	}
	return s.write(append(text, '\n'), recordsDir, s.recordKey(r.Digest))
}

// tries bounds the retries of acquire when others come and go.
const tries = 200

// acquire returns the environment of a digest with its lock held shared, or nil.
//
// Ordering: a remover holds the lock exclusively, removes the record, then the directory, then the
// lock's file. So a record that still exists once the lock is held shared means that nothing of the
// environment has been removed, and nothing will be until the lock is free.
func (s *store) acquire(ctx context.Context, digest string) (*record, *lock, error) {
	pause := firstPause
	for range tries {
		before, err := s.record(digest)
		if before == nil || err != nil {
			return nil, nil, err
		}
		l, err := tryLock(s.environmentLock(before.Name), shared, false)
		switch {
		case isAbsent(err) && s.writable:
			// Either the environment is being removed, or the file alone was, by hand. The next look at the
			// record tells.
			if after, err := s.record(digest); err != nil || after == nil || after.Name != before.Name {
				continue
			}
			if l, err = tryLock(s.environmentLock(before.Name), shared, true); err != nil {
				continue
			}
		case !s.writable && !errors.Is(err, errHeld) && err != nil:
			l = nil // a read-only cache without locks has no removers either
		case errors.Is(err, errHeld):
			// By a remover, or by List's look at who holds it.
			if err := sleep(ctx, pause); err != nil {
				return nil, nil, err
			}
			pause = min(2*pause, mostPause)
			continue
		case err != nil:
			return nil, nil, err
		}
		after, err := s.record(digest)
		if err != nil {
			l.release()
			return nil, nil, err
		}
		if after == nil || after.Name != before.Name {
			l.release()
			continue
		}
		if info, err := os.Lstat(s.directory(after.Name)); err != nil || !info.IsDir() {
			l.release()
			return nil, nil, s.forget(after)
		}
		return after, l, nil
	}
	return nil, nil, errors.New("the environment " + digest + " was created and removed too often")
}

// forget removes the record of an environment whose directory is gone.
func (s *store) forget(r *record) error {
	if !s.writable {
		return nil
	}
	_, err := s.evict(r.Name, s.recordKey(r.Digest))
	return err
}
