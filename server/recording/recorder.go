package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/bounds"
	"github.com/nereid-serving/nereid/panics"
)

// Config configures a Recorder.
type Config struct {
	Directory string   // of the files; "": nothing is recorded
	Models    []string // whose requests are recorded; none: all models
	Redact    []string // names of inputs, outputs and parameters whose values are left out
	// MaxRequests and MaxBytes bound the files in the directory, including existing ones. 0 is the
	// default of each.
	MaxRequests, MaxBytes int64
	Memory                *budget.Account // is charged for records that wait; nil charges nothing
	Log                   zerolog.Logger
}

// Bounds lists the numbers of c with their defaults and bounds.
func (c *Config) Bounds() bounds.Table {
	return bounds.Table{
		bounds.Of("MaxRequests", &c.MaxRequests, 10_000, 1, math.MaxInt64),
		bounds.Of("MaxBytes", &c.MaxBytes, 1<<30, 1, math.MaxInt64),
	}
}

// Bounds of records that wait to be written.
const (
	maxWaiting      = 1024     // finished requests
	maxWaitingBytes = 64 << 20 // of running and finished requests
)

// tellEvery is the least time between two log lines about dropped requests.
const tellEvery = 10 * time.Second

// The permissions of files and directories, which contain clients' data.
const (
	directoryMode = 0o700
	fileMode      = 0o600
)

// Recorder writes records. All methods may be called from any goroutine, Close once.
type Recorder struct {
	config Config
	key    string          // of the directory: requests with it are not recorded
	models map[string]bool // nil: all
	redact map[string]bool

	// Requests that have finished send to the queue without waiting. run receives from it until
	// finish is closed, which Close does when no request is running.
	queue  chan *pending
	finish chan struct{}
	ended  chan struct{} // closed by run

	full    atomic.Bool // recording has ended
	waiting atomic.Int64
	dropped atomic.Int64 // requests without room, since the start
	unkept  atomic.Int64 // requests that were waiting when the directory was full, or could not be written
	written atomic.Int64 // requests, since the start
	number  atomic.Int64 // of requests, since the start

	// These belong to run.
	requests, bytes int64 // in the directory
	told            int64 // of dropped
	made            map[string]bool
}

// New creates the directory, counts its records and starts to record. It returns nil without a
// directory. The caller closes the Recorder.
func New(config Config) (*Recorder, error) {
	if config.Directory == "" {
		return nil, nil //nolint:nilnil // as the doc says
	}
	config.Bounds().SetDefaults()
	if err := os.MkdirAll(config.Directory, directoryMode); err != nil {
		return nil, fmt.Errorf("record requests: %w", err)
	}
	r := &Recorder{
		config: config, redact: setOf(config.Redact), models: setOf(config.Models), made: make(map[string]bool),
		queue: make(chan *pending, maxWaiting), finish: make(chan struct{}), ended: make(chan struct{}),
	}
	err := r.count()
	if err == nil {
		r.key, err = makeKey(config.Directory)
	}
	if err != nil {
		return nil, fmt.Errorf("record requests: %w", err)
	}
	config.Log.Info().Msgf("requests are recorded in %s, which has %d of at most %d", config.Directory, r.requests, config.MaxRequests)
	if r.requests >= config.MaxRequests || r.bytes >= config.MaxBytes {
		r.fill()
	}
	panics.Go(config.Log, panics.Server, r.run, func(error) { r.full.Store(true); close(r.ended) })
	return r, nil
}

// Written returns the number of requests written since the start. Lost returns how many could not
// be written, for lack of room or after an error. Requests after the end of the recording count as
// neither.
func (r *Recorder) Written() int64 { return r.written.Load() }

// Lost is described with Written.
func (r *Recorder) Lost() int64 { return r.dropped.Load() + r.unkept.Load() }

// Open reports whether requests are recorded. They are not once the directory is full or a write
// has failed.
func (r *Recorder) Open() bool { return !r.full.Load() }

// bound: the configured names
func setOf(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// count adds up the existing records, and removes the unfinished files of a killed server.
func (r *Recorder) count() error {
	return filepath.WalkDir(r.config.Directory, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		switch {
		case strings.HasSuffix(path, Extension+temporary):
			return os.Remove(path)
		case strings.HasSuffix(path, Extension):
			info, err := e.Info()
			if err != nil {
				return err
			}
			r.requests++
			r.bytes += info.Size()
		}
		return nil
	})
}

// Close writes the remaining records. No request may be running.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	close(r.finish)
	<-r.ended
}

// run writes records from the queue.
func (r *Recorder) run() {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case p := <-r.queue:
			r.keep(p)
		case <-tick.C:
			r.tell()
		case <-r.finish:
			for {
				select {
				case p := <-r.queue:
					r.keep(p)
					continue
				default:
				}
				r.tell()
				close(r.ended)
				return
			}
		}
	}
}

// tell logs how many requests were dropped.
func (r *Recorder) tell() {
	if now := r.dropped.Load(); now > r.told {
		r.config.Log.Warn().Msgf("%d requests were not recorded, because too much data was waiting to be written to %s", now-r.told, r.config.Directory)
		r.told = now
	}
}

// fill ends the recording.
func (r *Recorder) fill() {
	if !r.full.Swap(true) {
		r.config.Log.Warn().Msgf("requests are no longer recorded: %s has %d of at most %d requests (--record-max-requests) and %d of at most %d bytes (--record-max-bytes)",
			r.config.Directory, r.requests, r.config.MaxRequests, r.bytes, r.config.MaxBytes)
	}
}

// temporary ends the name of a file that is being written.
const temporary = ".tmp"

// keep writes a record, unless the directory is full.
func (r *Recorder) keep(p *pending) {
	defer p.release()
	if r.full.Load() {
		r.unkept.Add(1)
		return
	}
	size, err := r.write(p)
	switch {
	case err != nil:
		r.unkept.Add(1)
		r.full.Store(true)
		r.config.Log.Error().Err(err).Msg("requests are no longer recorded")
		return
	case size == 0: // it did not fit
		r.unkept.Add(1)
		r.fill()
		return
	}
	r.written.Add(1)
	r.requests++
	if r.bytes += size; r.requests >= r.config.MaxRequests || r.bytes >= r.config.MaxBytes {
		r.fill()
	}
}

// write writes one file and returns its size, or 0 if the directory has no room for it.
func (r *Recorder) write(p *pending) (size int64, err error) {
	if r.bytes+p.size > r.config.MaxBytes {
		return 0, nil
	}
	folder := filepath.Join(r.config.Directory, p.record.Model)
	if !r.made[folder] {
		if err := os.Mkdir(folder, directoryMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return 0, err
		}
		r.made[folder] = true // bound: the models of the repository
	}
	path := filepath.Join(folder, fmt.Sprintf("%s-%06d%s", p.record.Received.UTC().Format("20060102T150405.000000000Z"), p.number, Extension))
	f, err := os.OpenFile(path+temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return 0, err
	}
	size, err = p.record.WriteTo(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(path+temporary, path)
	}
	if err != nil {
		_ = os.Remove(path + temporary)
	}
	return size, err
}

// Files lists the records below a directory, or a single record, in the order of their requests.
func Files(path string) ([]string, error) {
	var list []string
	err := filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && filepath.Ext(path) == Extension {
			list = append(list, path)
		}
		return err
	})
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return list, err
}
