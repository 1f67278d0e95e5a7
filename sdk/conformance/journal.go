package conformance

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// journal is the log of the backend under test. It keeps warnings and errors.
type journal struct {
	mu    sync.Mutex
	lines []string // not taken yet
}

// Write takes a line of zerolog's.
func (j *journal) Write(line []byte) (int, error) { return j.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel implements zerolog.LevelWriter.
func (j *journal) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	if level < zerolog.WarnLevel || level == zerolog.NoLevel {
		return len(line), nil
	}
	var fields struct{ Message, Error string }
	if err := json.Unmarshal(line, &fields); err != nil {
		fields.Message = string(line)
	}
	if fields.Error != "" {
		fields.Message += ": " + fields.Error
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fields.Message)
	return len(line), nil
}

// take returns the log lines about the backend's faults since the last call. Package engine names
// the backend first in each.
func (j *journal) take(backend string) (faults []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if at := strings.Index(line, "backend '"+backend+"'"); at >= 0 {
			faults = append(faults, line[at:])
		}
	}
	j.lines = nil
	return faults
}
