package cache

import (
	"fmt"
	"time"

	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// reportEvery is the interval of progress reports in the log.
const reportEvery = 5 * time.Second

// report logs the progress of reading an archive, until the returned function is called.
func (c *Cache) report(what string, src *source, progress *archive.Progress) (stop func()) {
	return c.regularly(what, func(event *zerolog.Event, elapsed time.Duration) {
		read := progress.Read.Load()
		event.Str("archive", src.path).Int64("bytes", read).Int64("of", src.id.size)
		if files := progress.Files.Load(); files > 0 {
			event.Int64("files", files).Int64("written", progress.Written.Load())
		}
		if left, ok := remaining(elapsed, read, src.id.size); ok {
			event.Stringer("left", left)
		}
	})
}

// regularly logs a message with fields from add, every reportEvery until the returned function is
// called.
func (c *Cache) regularly(what string, add func(event *zerolog.Event, elapsed time.Duration)) (stop func()) {
	began := time.Now()
	done := make(chan struct{})  // closed by stop
	ended := make(chan struct{}) // closed by the goroutine
	panics.Go(c.options.Log, panics.Models, func() {
		defer close(ended)
		ticker := time.NewTicker(reportEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			event := c.options.Log.Info()
			if event != nil { // the level is on
				add(event, time.Since(began))
			}
			event.Msg(what)
		}
	}, nil)
	return func() {
		close(done)
		<-ended
	}
}

// remaining estimates the remaining time from the speed so far.
func remaining(elapsed time.Duration, read, size int64) (time.Duration, bool) {
	if read <= 0 || read > size {
		return 0, false
	}
	return time.Duration(float64(elapsed) * float64(size-read) / float64(read)).Round(time.Second), true
}

// counter counts bytes that are read without archive.Unpack.
type counter struct{ progress *archive.Progress }

func (c counter) Write(p []byte) (int, error) {
	c.progress.Read.Add(int64(len(p)))
	return len(p), nil
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := int64(1) << (10 * (3 - i)); n >= size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(size), unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
