package functions

import (
	"context"
	"maps"
	"os"
	"time"
)

// interval is the time between two looks at the files.
const interval = 200 * time.Millisecond

// stamp is the state of a file.
type stamp struct {
	size     int64
	modified time.Time
}

// stamps returns the states of files; a file that does not exist has none.
func stamps(files []string) map[string]stamp {
	all := make(map[string]stamp, len(files))
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			all[file] = stamp{info.Size(), info.ModTime()}
		}
	}
	return all
}

// Watch calls again until ctx ends, each time that files have changed since they were read and stay
// the same for an interval. again reads the files, and returns those to watch from then on.
func Watch(ctx context.Context, files []string, read time.Time, again func() []string) {
	look := time.NewTicker(interval)
	defer look.Stop()
	known := unchanged(files, read)
	var before map[string]stamp
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now := stamps(files)
		if !maps.Equal(now, known) && maps.Equal(now, before) {
			read = time.Now()
			files = again()
			known = unchanged(files, read)
		}
		before = now
	}
}

// late is the time by which the clock of a file system may be behind.
const late = 50 * time.Millisecond

// unchanged returns the states of files that have not changed since they were read.
func unchanged(files []string, read time.Time) map[string]stamp {
	all := stamps(files)
	maps.DeleteFunc(all, func(_ string, s stamp) bool { return s.modified.After(read.Add(-late)) })
	return all
}
