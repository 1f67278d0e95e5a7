package cache

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"
)

// Entry is one environment in a List.
type Entry struct {
	Name      string    `json:"name"` // of its directory
	Digest    string    `json:"digest"`
	Directory string    `json:"directory"`
	Source    string    `json:"source"` // path of the archive, or key of Build
	Bytes     int64     `json:"bytes"`
	Files     int64     `json:"files"`
	Created   time.Time `json:"created"`
	Used      time.Time `json:"used"` // when it was held last
	InUse     bool      `json:"in_use"`
	Complete  bool      `json:"complete"` // false: being made if in use, else left by a process that was killed

	key string // of its record
}

// List returns all environments, the most recently used first, followed by incomplete ones.
func (c *Cache) List() ([]Entry, error) {
	stores, err := c.searched()
	if err != nil {
		return nil, err
	}
	var all []Entry // bound: mostEnvironments
	for _, s := range stores {
		entries, err := s.complete()
		if err != nil {
			return nil, err
		}
		slices.SortFunc(entries, func(a, b Entry) int { return b.Used.Compare(a.Used) })
		rest, err := s.unrecorded()
		if err != nil {
			return nil, err
		}
		for _, name := range rest {
			entries = append(entries, Entry{Name: name, Directory: s.directory(name)}) // bound: mostEnvironments
		}
		for i := range entries {
			entries[i].InUse = s.inUse(entries[i].Name)
		}
		all = append(all, entries...)
	}
	return all, nil
}

// complete lists the recorded environments.
func (s *store) complete() ([]Entry, error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	var entries []Entry // bound: mostEnvironments
	for key, r := range records {
		e := Entry{
			Name: r.Name, Digest: r.Digest, Directory: s.directory(r.Name), Source: r.Source, Bytes: r.Bytes, Files: r.Files,
			Created: r.Created, Used: r.Created, Complete: true, key: key,
		}
		if info, err := os.Stat(s.environmentLock(r.Name)); err == nil {
			e.Used = info.ModTime()
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// inUse tries the lock for an instant: acquire retries if it meets this.
func (s *store) inUse(name string) bool {
	l, err := tryLock(s.environmentLock(name), exclusive, false)
	l.release()
	return errors.Is(err, errHeld)
}

// Verify compares an environment with its original state and describes the differences in
// sentences: names, kinds, sizes and modes, and with deep all bytes. It is not removed meanwhile.
func (c *Cache) Verify(ctx context.Context, e Entry, deep bool) ([]string, error) {
	stores, err := c.searched()
	if err != nil {
		return nil, err
	}
	for _, s := range stores {
		if s.directory(e.Name) != e.Directory {
			continue
		}
		l, err := tryLock(s.environmentLock(e.Name), shared, false)
		if err != nil && s.writable {
			return nil, err
		}
		defer l.release()
		return c.verify(ctx, s, e.Name, deep)
	}
	return nil, errors.New(e.Directory + " is not in this cache")
}

func (c *Cache) verify(ctx context.Context, s *store, name string, deep bool) ([]string, error) {
	text, err := os.ReadFile(s.path(manifestsDir, name)) // bound: a manifest, as its operator has asked for it
	if isAbsent(err) {
		return []string{"its manifest is missing"}, nil
	}
	if err != nil {
		return nil, err
	}
	want, err := decodeManifest(text)
	if err != nil {
		return []string{err.Error()}, nil //nolint:nilerr // a finding does not fail the search
	}
	want.sort()
	now, err := list(ctx, c.options.Log, s.directory(name), deep)
	if isAbsent(err) {
		return []string{"its directory is missing"}, nil
	}
	if err != nil {
		return nil, err
	}
	return want.compare(now, deep), nil
}

// Find returns the entries that match a text: name, directory, source, or the beginning of the
// digest.
func Find(entries []Entry, text string) []Entry {
	var found []Entry // bound: the entries
	for _, e := range entries {
		const least = 6 // digits of a digest
		if e.Name == text || e.Directory == text || e.Source == text || len(text) >= least && strings.HasPrefix(e.Digest, text) {
			found = append(found, e)
		}
	}
	return found
}
