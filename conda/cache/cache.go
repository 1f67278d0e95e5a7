package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// DefaultMaxBytes bounds a cache whose Options set no bound.
const DefaultMaxBytes = 32 << 30

// mostEnvironments bounds the environments of a bounded cache, except those in use: each load looks
// through their records, and uploaded archives may be tiny.
const mostEnvironments = 10_000

// mostUnpacking bounds the archives that are unpacked at a time. Each may take up to 300 MiB: the
// window of its compression, and names.
const mostUnpacking = 4

// Options configure a Cache.
type Options struct {
	// Directory is the cache's. Empty: nereid/environments in the user's cache folder, or a
	// temporary directory of this Cache if that is not writable.
	Directory string
	// MaxBytes bounds all environments together. Above it, and above 10,000 environments, the least
	// recently used ones that are not in use are removed. 0: DefaultMaxBytes; negative: no bound.
	MaxBytes int64
	Limits   archive.Limits // of what an archive may unpack to
	Log      zerolog.Logger
	Memory   *budget.Account // charged for unpacking; may be nil
	// Run starts a program, waits for it and returns the end of its output. env is its whole
	// environment.
	Run func(ctx context.Context, argv, env []string, dir string) (output string, err error)
}

// Cache is a directory of environments, as one process uses it.
type Cache struct {
	options Options
	closing chan struct{}    // closed by Close: ends sweeping
	unpacks chan struct{}    // has a value for each archive that is being unpacked; the buffer bounds them
	sweeper sync.Once        // starts it
	group   panics.WaitGroup // of the Cache's goroutines

	// step is called before each step of making an environment. Tests make it fail, or end the
	// process.
	step func(name string) error

	placing sync.Mutex // held while a directory is looked for or made
	main    *store     // Options.Directory or the default one; nil until it is there
	private *store     // nil until it is needed

	mu      sync.Mutex
	held    map[string]*hold   // by directory. bound: the environments in use
	flights map[string]*flight // by key. bound: the running loads
}

// hold is an environment that this process uses.
type hold struct {
	users int
	lock  *lock // shared; nil in a read-only cache without locks
}

// Open checks the directory if it exists; it is made when it is needed.
func Open(options Options) (*Cache, error) {
	if options.MaxBytes == 0 {
		options.MaxBytes = DefaultMaxBytes
	}
	if err := options.Limits.Validate(); err != nil {
		return nil, err
	}
	c := &Cache{
		options: options, closing: make(chan struct{}), unpacks: make(chan struct{}, mostUnpacking), step: func(string) error { return nil },
		held: make(map[string]*hold), flights: make(map[string]*flight),
	}
	if _, err := c.searched(); err != nil {
		return nil, err
	}
	return c, nil
}

// Close waits for the Cache's own goroutines, and removes a temporary directory. All Environments
// have been released before.
func (c *Cache) Close() error {
	close(c.closing)
	c.group.Wait()
	c.placing.Lock()
	defer c.placing.Unlock()
	if c.private == nil {
		return nil
	}
	err := removeAll(c.private.root)
	c.private.private.release()
	c.private = nil
	return err
}

// Environment is a directory that does not change until Release.
type Environment struct {
	Directory string // absolute
	Digest    string // SHA-256 of the archive, or of the key of Build; in hex
	release   func()
}

// Release ends the caller's use of the directory.
func (e *Environment) Release() { e.release() }

// hold makes an Environment from a locked record.
func (c *Cache) hold(s *store, r *record, l *lock) *Environment {
	directory := s.directory(r.Name)
	touch(l)
	c.mu.Lock()
	if h := c.held[directory]; h != nil {
		h.users++
		defer l.release() // one lock for all users is enough
	} else {
		c.held[directory] = &hold{users: 1, lock: l}
	}
	c.mu.Unlock()
	return &Environment{Directory: directory, Digest: r.Digest, release: sync.OnceFunc(func() { c.release(directory) })}
}

func (c *Cache) release(directory string) {
	c.mu.Lock()
	h := c.held[directory]
	h.users--
	last := h.users == 0
	if last {
		delete(c.held, directory)
	}
	c.mu.Unlock()
	if last { // a goroutine that comes now takes its own lock
		touch(h.lock)
		h.lock.release()
	}
}

// touch records the use of an environment in the time of its lock's file.
func touch(l *lock) {
	if l != nil {
		_ = os.Chtimes(l.path, time.Time{}, time.Now()) // a read-only cache removes nothing, and needs no times
	}
}

// flight is the making of one environment by one goroutine; others wait for it.
type flight struct {
	done      chan struct{} // closed by the goroutine that makes
	err       error         // before done is closed
	abandoned bool          // the maker's own ctx has ended: others try themselves
}

// together calls f, unless another goroutine is doing so for the same key: then it waits for that
// one. Without an error and without an environment the caller looks again.
func (c *Cache) together(ctx context.Context, key string, f func() (*Environment, error)) (*Environment, error) {
	c.mu.Lock()
	if other := c.flights[key]; other != nil {
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-other.done:
		}
		if other.abandoned {
			return nil, nil
		}
		return nil, other.err
	}
	own := &flight{done: make(chan struct{}), abandoned: true} // as after a panic
	c.flights[key] = own
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.flights, key)
		c.mu.Unlock()
		close(own.done)
	}()
	env, err := f()
	own.err, own.abandoned = err, ctx.Err() != nil
	return env, err
}

// searched returns the stores to search for environments.
func (c *Cache) searched() ([]*store, error) {
	c.placing.Lock()
	defer c.placing.Unlock()
	if c.main == nil {
		directory, err := c.options.directory()
		if err == nil {
			c.main, err = openStore(directory)
		}
		if err != nil {
			c.main = nil
			if !isAbsent(err) && (c.options.Directory != "" || !isClosed(err)) {
				return nil, err
			}
		}
	}
	var stores []*store
	for _, s := range []*store{c.main, c.private} {
		if s != nil {
			stores = append(stores, s)
		}
	}
	return stores, nil
}

// written returns the store for new environments.
func (c *Cache) written() (*store, error) {
	c.placing.Lock()
	defer c.placing.Unlock()
	if c.private != nil {
		return c.private, nil
	}
	if c.main != nil && c.main.furnished && c.main.stands() {
		return c.main, nil
	}
	directory, err := c.options.directory()
	if err == nil {
		var s *store
		if s, err = makeStore(directory); err == nil {
			c.main = s
			return s, nil
		}
	}
	if c.options.Directory != "" {
		return nil, fmt.Errorf("%w: name another directory with env-cache-directory", err)
	}
	if !isAbsent(err) && !isClosed(err) {
		return nil, err
	}
	private, privateErr := makePrivate()
	if privateErr != nil {
		return nil, fmt.Errorf("%w; nor can a temporary directory be made: %w", err, privateErr)
	}
	c.private = private
	c.options.Log.Warn().Str("error", err.Error()).Str("directory", private.root).Msg("environments are unpacked to a temporary directory, again at each start")
	return private, nil
}

// directory returns the preferred directory of the cache.
func (o *Options) directory() (string, error) {
	if o.Directory != "" {
		return o.Directory, nil
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoFolder, err)
	}
	return filepath.Join(folder, "nereid", "environments"), nil
}

var errNoFolder = errors.New("this user has no cache folder")
