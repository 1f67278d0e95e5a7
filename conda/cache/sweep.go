package cache

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/panics"
)

// sweepOnce sweeps a store in the background, once in the life of a Cache.
func (c *Cache) sweepOnce(s *store) {
	if !s.writable {
		return
	}
	c.sweeper.Do(func() {
		c.group.Go(c.options.Log, panics.Models, func() {
			c.sweep(s, func() bool {
				select {
				case <-c.closing:
					return true
				default:
					return false
				}
			})
		}, nil)
	})
}

// sweep removes the remains of killed processes: everything without a record and a lock. It
// continues after errors: the next sweep retries.
func (c *Cache) sweep(s *store, stopped func() bool) {
	index, _ := s.names(indexDir) // before the records: an entry comes after its record
	names, err := s.unrecorded()
	if err != nil {
		c.options.Log.Warn().Err(err).Str("directory", s.root).Msg("sweep the environment cache")
		return
	}
	for _, name := range names {
		if stopped() {
			return
		}
		if removed, err := s.evict(name, ""); err != nil {
			c.options.Log.Warn().Err(err).Str("environment", s.directory(name)).Msg("remove an environment left by a killed process")
		} else if removed {
			c.options.Log.Debug().Str("environment", s.directory(name)).Msg("removed an environment left by a killed process")
		}
	}
	for _, dir := range []string{newDir, locksDir} {
		files, _ := s.names(dir)
		for _, file := range files {
			if dir == locksDir && !strings.HasSuffix(file, ".source") {
				continue
			}
			if l, err := tryLock(s.path(dir, file), exclusive, false); err == nil {
				l.remove()
			}
		}
	}
	s.sweepIndex(index)
}

// unrecorded lists environments of which something exists, but no record.
func (s *store) unrecorded() ([]string, error) {
	found := make(map[string]bool) // bound: mostEnvironments, and remains of killed processes
	for _, dir := range []string{".", manifestsDir, locksDir} {
		names, err := s.names(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if name = strings.TrimSuffix(name, ".env"); environmentName.MatchString(name) {
				found[name] = true
			}
		}
	}
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		delete(found, r.Name)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// sweepIndex removes those of the given entries whose digest has no environment. Its lock keeps an
// entry from being replaced between the check and the removal.
func (s *store) sweepIndex(entries []string) {
	l, err := tryLock(s.sourceLock(indexDir), exclusive, true)
	if err != nil {
		return // another process enters something or sweeps: the next sweep is soon enough
	}
	defer l.remove()
	records, err := s.records()
	if err != nil {
		return
	}
	known := make(map[string]bool, len(records)) // bound: mostEnvironments
	for _, r := range records {
		known[r.Digest] = true
	}
	for _, name := range entries {
		if entry := s.readIndex(name); entry == nil || !known[entry.Digest] {
			_ = os.Remove(s.path(indexDir, name))
		}
	}
}

// evict removes an environment that no process uses or makes, and reports whether it did. key is
// that of its record, or empty.
//
// Ordering: the lock, the record, the rest, the lock's file; acquire looks at them in the other
// order. The record is off the disk before anything of the directory is, so that a power loss
// leaves no record of half an environment.
func (s *store) evict(name, key string) (bool, error) {
	l, err := tryLock(s.environmentLock(name), exclusive, true)
	if errors.Is(err, errHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// Now no other process makes, uses or removes it. It may have changed since the caller looked.
	records, err := s.records()
	if err != nil {
		l.release()
		return false, err
	}
	for k, r := range records {
		if r.Name != name {
			continue
		}
		if k != key { // its maker has committed it meanwhile
			l.release()
			return false, nil
		}
		if err := errors.Join(os.Remove(s.path(recordsDir, k)), syncDirectory(s.path(recordsDir))); err != nil {
			l.release()
			return false, err
		}
	}
	return true, s.clear(name, l)
}

// clear removes an environment without a record, and its lock, which the caller holds exclusively.
func (s *store) clear(name string, l *lock) error {
	err := removeAll(s.directory(name))
	if err == nil {
		if err = os.Remove(s.path(manifestsDir, name)); isAbsent(err) {
			err = nil
		}
	}
	if err != nil {
		l.release() // with its file: sweep comes back to the name
		return err
	}
	l.remove()
	return nil
}

// discard is clear after a failure, which the caller reports.
func (c *Cache) discard(s *store, name string, l *lock) {
	if err := s.clear(name, l); err != nil {
		c.options.Log.Warn().Err(err).Str("environment", s.directory(name)).Msg("remove an incomplete environment; the next sweep retries")
	}
}

// limit removes the least recently used environments until the rest fits the bound.
func (c *Cache) limit(ctx context.Context, s *store) {
	if c.options.MaxBytes < 0 {
		return
	}
	removed, err := s.prune(ctx, Selection{MaxBytes: c.options.MaxBytes, Bounded: true})
	for _, e := range removed {
		c.options.Log.Info().Str("environment", e.Directory).Time("used", e.Used).Int64("bytes", e.Bytes).Msg("environment removed: the cache has reached its size limit")
	}
	if err != nil {
		c.options.Log.Warn().Err(err).Str("directory", s.root).Msg("keep the environment cache within its size limit")
	}
}

// Selection selects the environments that Prune removes. None in use is removed.
type Selection struct {
	All    bool
	Unused time.Duration // those unused for that long; 0: no such limit
	// MaxBytes bounds the rest, if Bounded, and so does mostEnvironments: the least recently used
	// environments are removed.
	MaxBytes int64
	Bounded  bool
	Names    []string // these; each has to be there
}

// Prune removes environments, and the remains of killed processes. It returns the removed
// environments.
func (c *Cache) Prune(ctx context.Context, which Selection) ([]Entry, error) {
	stores, err := c.searched()
	if err != nil {
		return nil, err
	}
	var removed []Entry // bound: mostEnvironments
	for _, s := range stores {
		if !s.writable {
			return removed, &os.PathError{Op: "write to", Path: s.root, Err: os.ErrPermission}
		}
		more, err := s.prune(ctx, which)
		removed = append(removed, more...)
		if err != nil {
			return removed, err
		}
		c.sweep(s, func() bool { return ctx.Err() != nil })
	}
	return removed, nil
}

func (s *store) prune(ctx context.Context, which Selection) (removed []Entry, err error) {
	entries, err := s.complete()
	if err != nil {
		return nil, err
	}
	total, left := int64(0), len(entries)
	for _, e := range entries {
		total += e.Bytes
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.Used.Compare(b.Used) })
	for _, e := range entries {
		unwanted := which.All || which.Unused > 0 && time.Since(e.Used) >= which.Unused ||
			which.Bounded && (total > which.MaxBytes || left > mostEnvironments) || slices.Contains(which.Names, e.Name)
		if !unwanted {
			continue
		}
		if ctx.Err() != nil {
			return removed, context.Cause(ctx)
		}
		gone, err := s.evict(e.Name, e.key)
		if gone {
			removed = append(removed, e) // bound: mostEnvironments
			total -= e.Bytes
			left--
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}
