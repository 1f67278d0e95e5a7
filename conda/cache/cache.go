package cache

import (
	"context"
	"errors"
	"time"

	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/rs/zerolog"
)

// DefaultMaxBytes bounds a cache whose Options name no bound.
const DefaultMaxBytes = 32 << 30

// Options say where environments lie and how they are made.
type Options struct {
	// Directory is the cache's. Empty: nereid/environments in the user's cache folder, or a
	// temporary directory of this Cache alone where that cannot be written.
	Directory string
	// MaxBytes bounds all environments together. Above it, those are removed that have not been
	// used for longest; none in use. 0: DefaultMaxBytes; negative: no bound.
	MaxBytes int64
	Limits   archive.Limits // of what an archive may unpack to
	Log      zerolog.Logger
	// Run starts a program, waits for it and returns the end of what it printed. env is its whole
	// environment.
	Run func(ctx context.Context, argv, env []string, dir string) (output string, err error)
}

// Cache is a directory of environments, as one process uses it.
type Cache struct{}

// Environment is a directory that stays as it is until Release.
type Environment struct {
	Directory string // absolute
	Digest    string // SHA-256 of the archive, or of the key of Build; in hex
}

// Open checks the directory, if it is there; it is made when it is needed.
func Open(options Options) (*Cache, error) { return &Cache{}, nil }

// Archive returns the environment that was packed in an archive. The first caller of all processes
// unpacks it, bounded by ctx; others wait for as long as their ctx allows. An error names the archive.
func (c *Cache) Archive(ctx context.Context, path string) (*Environment, error) {
	return nil, errors.ErrUnsupported
}

// Build returns the environment of a key. If there is none, make makes it in dir, an empty
// directory in which it stays; if make fails, nothing is left of it.
func (c *Cache) Build(ctx context.Context, key string, make func(ctx context.Context, dir string) error) (*Environment, error) {
	return nil, errors.ErrUnsupported
}

// Close waits for the Cache's own goroutines, and removes a temporary directory. All Environments
// have been released before.
func (c *Cache) Close() error { return nil }

// Release says that the caller uses the directory no longer.
func (e *Environment) Release() {}

// Entry is what List tells of an environment.
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
	Complete  bool      `json:"complete"` // false: being made, or left by a process that was killed
}
