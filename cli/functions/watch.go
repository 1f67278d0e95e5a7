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

// Watch calls again until ctx ends, each time that files have changed and stay the same for an
// interval. again returns the files to watch from then on.
func Watch(ctx context.Context, files []string, again func() []string) {
	look := time.NewTicker(interval)
	defer look.Stop()
	known := stamps(files)
	before := known
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now := stamps(files)
		if !maps.Equal(now, known) && maps.Equal(now, before) {
			known = now
			files = again()
			for file, state := range stamps(files) {
				if _, old := known[file]; !old {
					known[file] = state
				}
			}
			now = known
		}
		before = now
	}
}
