package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Archive returns the environment that was packed in an archive. The first caller of all processes
// unpacks it, bounded by ctx; others wait for as long as their ctx allows. An error names the
// archive.
func (c *Cache) Archive(ctx context.Context, path string) (*Environment, error) {
	src, err := openSource(path)
	if err != nil {
		return nil, err
	}
	defer src.file.Close()
	return c.obtain(ctx, fmt.Sprintf("%d-%s %s", src.id.device, src.id.key(), path), src.path, func() (*Environment, error) {
		return c.find(ctx, src)
	}, func() (*Environment, error) {
		return c.unpack(ctx, src)
	})
}

// Build returns the environment of a key. If it does not exist, make makes it in dir, an empty
// directory in which it stays; if make fails, nothing is left of it.
func (c *Cache) Build(ctx context.Context, key string, make func(ctx context.Context, dir string) error) (*Environment, error) {
	sum := sha256.Sum256([]byte("build " + key)) // bound: what build makes of requirements
	digest := hex.EncodeToString(sum[:])
	find := func() (*Environment, error) { return c.findDigest(ctx, digest) }
	return c.obtain(ctx, "build "+key, key, find, func() (*Environment, error) {
		s, err := c.written()
		if err != nil {
			return nil, err
		}
		l, err := c.waitSource(ctx, s, digest, key)
		if err != nil {
			return nil, err
		}
		defer l.remove()
		if env, err := find(); env != nil || err != nil {
			return env, err
		}
		r := &record{Source: key, Digest: digest}
		return c.make(ctx, s, digest, r, func(dir string) error { return make(ctx, dir) })
	})
}

// obtain finds an environment, or makes it in one goroutine.
func (c *Cache) obtain(ctx context.Context, key, what string, find, make func() (*Environment, error)) (*Environment, error) {
	for range tries {
		if env, err := find(); env != nil || err != nil {
			return env, err
		}
		if env, err := c.together(ctx, key, make); env != nil || err != nil {
			return env, err
		}
	}
	return nil, fmt.Errorf("the environment of %s was removed each time it was created: is the cache's limit too small?", what)
}

// find returns the environment of an archive in the index, or nil.
func (c *Cache) find(ctx context.Context, src *source) (*Environment, error) {
	stores, err := c.searched()
	if err != nil {
		return nil, err
	}
	for _, s := range stores {
		digest, err := s.digestOf(src)
		if err != nil {
			return nil, err
		}
		if digest == "" {
			continue
		}
		if env, err := c.findDigest(ctx, digest); env != nil || err != nil {
			return env, err
		}
	}
	return nil, nil
}

// findDigest returns the environment of a digest, or nil.
func (c *Cache) findDigest(ctx context.Context, digest string) (*Environment, error) {
	stores, err := c.searched()
	if err != nil {
		return nil, err
	}
	for _, s := range stores {
		r, l, err := s.acquire(ctx, digest)
		if err != nil {
			return nil, err
		}
		if r != nil {
			c.sweepOnce(s)
			return c.hold(s, r, l), nil
		}
	}
	return nil, nil
}

// findTwin returns the environment of an archive whose file is unknown but whose content may be
// known: after a touch, a move or a copy. The archive is read if an environment has its
// fingerprint.
func (c *Cache) findTwin(ctx context.Context, src *source) (*Environment, error) {
	stores, err := c.searched()
	if err != nil {
		return nil, err
	}
	fingerprint, err := src.fingerprint()
	if err != nil {
		return nil, err
	}
	for _, s := range stores {
		twin, err := s.twin(fingerprint)
		if err != nil {
			return nil, err
		}
		if twin == nil {
			continue
		}
		// A cache from an image cannot record the archive's identity on this machine, and each start
		// would read it again. Size, time and both ends, which include the checksum of a compressed
		// archive, must suffice.
		if !s.writable && twin.Modified == src.id.modified() {
			return c.findDigest(ctx, twin.Digest)
		}
		steady, err := src.settle(ctx)
		if err != nil {
			return nil, err
		}
		var progress archive.Progress
		stop := c.report("reading environment archive", src, &progress)
		digest, err := src.digest(ctx, counter{&progress})
		stop()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", src.path, err)
		}
		env, err := c.findDigest(ctx, digest)
		if env != nil && steady {
			c.enter(ctx, s, src, digest)
		}
		if env != nil || err != nil {
			return env, err
		}
	}
	return nil, nil
}

// enter records an archive's digest if possible. Otherwise the next start reads the archive once
// more.
func (c *Cache) enter(ctx context.Context, s *store, src *source, digest string) {
	if !s.writable {
		return
	}
	if err := s.enter(ctx, src, digest); err != nil {
		c.options.Log.Warn().Err(err).Str("archive", src.path).Msg("environment archive was not recorded: the next start reads it again")
	}
}

// waitSource takes the lock shared by all processes that make the same environment.
func (c *Cache) waitSource(ctx context.Context, s *store, key, what string) (*lock, error) {
	path := s.sourceLock(key)
	l, err := tryLock(path, exclusive, true)
	if !errors.Is(err, errHeld) {
		return l, err
	}
	waiting := "waiting for another process that makes this environment"
	c.options.Log.Info().Str("source", what).Msg(waiting)
	defer c.regularly(waiting, func(event *zerolog.Event, elapsed time.Duration) {
		event.Str("source", what).Stringer("wait", elapsed.Round(time.Second))
	})()
	return waitLock(ctx, path)
}

// unpack makes the environment of an archive that find does not know.
func (c *Cache) unpack(ctx context.Context, src *source) (*Environment, error) {
	// A cache that this user may only read can still have it.
	if env, err := c.findTwin(ctx, src); env != nil || err != nil {
		return env, err
	}
	s, err := c.written()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", src.path, err)
	}
	fingerprint, err := src.fingerprint()
	if err != nil {
		return nil, err
	}
	l, err := c.waitSource(ctx, s, fingerprint, src.path)
	if err != nil {
		return nil, fmt.Errorf("wait for another process that unpacks %s: %w", src.path, err)
	}
	defer l.remove()
	// The previous holder of the lock has made the environment, unless it was killed.
	if env, err := c.find(ctx, src); env != nil || err != nil {
		return env, err
	}
	if env, err := c.findTwin(ctx, src); env != nil || err != nil {
		return env, err
	}
	steady, err := src.settle(ctx)
	if err != nil {
		return nil, err
	}
	c.options.Log.Debug().Msg("Extracting Python execution env " + src.path)
	r := &record{Source: src.path, Fingerprint: fingerprint, Modified: src.id.modified()}
	env, err := c.make(ctx, s, fingerprint, r, func(dir string) error { return c.extract(ctx, src, r, dir) })
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", src.path, c.roomless(s, err))
	}
	if env == nil {
		return nil, nil
	}
	if err := c.step("index"); err != nil {
		env.Release()
		return nil, err
	}
	if steady {
		c.enter(ctx, s, src, r.Digest)
	}
	return env, nil
}

// extract unpacks an archive to dir and computes its digest from the same bytes.
func (c *Cache) extract(ctx context.Context, src *source, r *record, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := src.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var progress archive.Progress
	defer c.report("unpacking environment", src, &progress)()
	select {
	case c.unpacks <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	sum, charge := sha256.New(), &budget.Charge{Account: c.options.Memory}
	err = archive.Unpack(ctx, io.TeeReader(src.file, sum), root, archive.Options{
		Limits: c.options.Limits, Progress: &progress, Charge: charge, Log: c.options.Log,
	})
	charge.Settle()
	<-c.unpacks // Unpack does not panic, and conda-unpack below, a program of the archive, may take any time
	if changed := src.unchanged(); changed != nil {
		return changed // which may have caused the other error
	}
	if err != nil {
		return err
	}
	r.Digest = hex.EncodeToString(sum.Sum(nil)) // bound: a digest
	if err := c.step("relocate"); err != nil {
		return err
	}
	return c.relocate(ctx, dir)
}

// relocate runs conda-pack's program that writes the environment's new path into its files.
func (c *Cache) relocate(ctx context.Context, dir string) error {
	python, script := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "bin", "conda-unpack")
	for _, path := range []string{python, script} {
		if _, err := os.Stat(path); err != nil {
			return nil //nolint:nilerr // most archives have none; a missing python is reported at the model's start
		}
	}
	if c.options.Run == nil {
		return errors.New("bin/conda-unpack cannot be run here")
	}
	env := []string{
		"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin", "CONDA_PREFIX=" + dir, "LC_ALL=C.UTF-8",
		"PYTHONNOUSERSITE=1", "PYTHONDONTWRITEBYTECODE=1",
		"LD_LIBRARY_PATH=" + filepath.Join(dir, "lib"), // as a stub has it: some interpreters find their library by it alone
	}
	output, err := c.options.Run(ctx, []string{python, script}, env, dir)
	if err != nil {
		return fmt.Errorf("bin/conda-unpack: %w; it printed %q", err, strings.TrimSpace(output))
	}
	return nil
}

// make makes an environment and commits it. The caller holds the source's lock. It returns no
// environment and no error if others have removed it at once.
func (c *Cache) make(ctx context.Context, s *store, key string, r *record, fill func(dir string) error) (*Environment, error) {
	c.sweep(s, func() bool { return ctx.Err() != nil }) // makes room
	began := time.Now()
	l, err := s.begin(key, r)
	if err != nil {
		return nil, err
	}
	complete := false
	defer func() {
		if !complete {
			c.discard(s, r.Name, l)
		}
	}()
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"directory", func() error { return os.Mkdir(s.directory(r.Name), 0o700) }},
		{"fill", func() error { return fill(s.directory(r.Name)) }},
		{"settle", func() error { return c.makeDurable(ctx, s, r) }},
		{"record", func() error { return s.writeRecord(r) }},
	} {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := c.step(step.name); err != nil {
			return nil, err
		}
		if err := step.do(); err != nil {
			return nil, err
		}
	}
	complete = true
	if err := l.become(shared); err != nil {
		l.release()
		if errors.Is(err, errHeld) {
			return nil, nil
		}
		return nil, err
	}
	if !l.named() { // removed while the lock changed hands
		l.release()
		return nil, nil
	}
	env := c.hold(s, r, l)
	c.options.Log.Info().Str("environment", env.Directory).Str("source", r.Source).Int64("bytes", r.Bytes).Int64("files", r.Files).
		Dur("took", time.Since(began)).Msg("environment unpacked")
	c.limit(ctx, s)
	return env, nil
}

// begin names a new environment and takes its lock, before anything of that name is made.
func (s *store) begin(key string, r *record) (*lock, error) {
	for {
		r.Name = key[:12] + "-" + randomHex(4)
		l, err := tryLock(s.environmentLock(r.Name), exclusive, true)
		if !errors.Is(err, errHeld) { // by a sweeper, just now
			return l, err
		}
	}
}

// makeDurable lists the files of an environment while they are synced to the disk.
func (c *Cache) makeDurable(ctx context.Context, s *store, r *record) error {
	root, err := os.OpenRoot(s.directory(r.Name))
	if err != nil {
		return err
	}
	defer root.Close()
	defer c.regularly("writing environment to the disk", func(event *zerolog.Event, elapsed time.Duration) {
		event.Str("environment", root.Name()).Stringer("wait", elapsed.Round(time.Second))
	})()
	err = s.writeFrom(func(to io.Writer) (err error) {
		synced := make(chan error, 1) // sent to once
		panics.Go(c.options.Log, panics.Models, func() { synced <- archive.Sync(root) }, func(err error) { synced <- err })
		r.Files, r.Bytes, err = writeManifest(ctx, c.options.Log, s.directory(r.Name), to)
		return errors.Join(err, <-synced)
	}, manifestsDir, r.Name)
	r.Created = time.Now().UTC().Truncate(time.Second)
	return err
}

// roomless adds the free space to an error of a full disk.
func (c *Cache) roomless(s *store, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	var fs unix.Statfs_t
	if statErr := unix.Statfs(s.root, &fs); statErr != nil {
		return err
	}
	// A file system can be out of inodes while it has bytes.
	return fmt.Errorf("%w: before unpacking, the file system of the cache %s has room for %s and %d files; nereid env prune removes unused environments, env-cache-directory selects another directory",
		err, s.root, bytesText(int64(fs.Bavail)*fs.Bsize), fs.Ffree)
}
