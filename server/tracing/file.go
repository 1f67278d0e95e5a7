package tracing

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/server/jsontext"
)

const (
	// maxGathered bounds the text that waits for its file, in bytes.
	maxGathered = 4 << 20
	// defaultMost is the default of SettingMost.
	defaultMost = 1 << 30
	// fileMode is the mode of new files, which contain clients' data.
	fileMode = 0o600
)

// files writes traces as Triton's files: a JSON array in each. A reader always finds a complete
// array: an indexed file is renamed, and the single file of frequency 0 grows by one write over its
// closing bracket.
type files struct {
	path    string
	most    int64 // bytes of all files together
	log     zerolog.Logger
	file    *os.File // of frequency 0, nil before the first trace
	size    int64    // of file
	index   int      // of the next indexed file
	written int64    // bytes, to all files
	dropped uint64   // traces, since the files have reached their limit
	failing bool     // the last write has failed, which has been logged
}

func newFiles(path string, most int64, log zerolog.Logger) *files {
	return &files{path: path, most: most, log: log}
}

// keep implements sink.
func (f *files) keep(tree *trace.Tree, s *setting) {
	if text := appendTree(nil, tree); len(text) > 0 { // of level TENSORS alone a rejected request has no entry
		if s.pieces > 0 {
			s.gathered = append(s.gathered, ',')
		}
		s.gathered = append(s.gathered, text...)
		s.pieces++
	}
	s.kept++
	full := s.frequency != 0 && s.pieces >= s.frequency
	usedUp := s.usedUp()
	if full || s.retired || len(s.gathered) >= maxGathered || usedUp {
		// As in Triton, where a count is used up only if it samples each request.
		f.write(s, s.frequency != 0 || usedUp && s.rate == 1)
	}
}

// retire implements sink.
func (f *files) retire(s *setting) {
	s.retired = true
	f.write(s, s.frequency != 0)
}

// write writes the collected traces of a setting, to an indexed file or the other one. A failed
// write loses them.
func (f *files) write(s *setting, indexed bool) {
	if s.pieces == 0 {
		return
	}
	text, pieces := s.gathered, s.pieces
	s.gathered, s.pieces = nil, 0
	size := int64(len(text)) + 2 // with brackets, or a comma
	if f.dropped > 0 || size > f.most-f.written {
		if f.dropped == 0 {
			f.log.Warn().Msgf("traces are no longer written: the trace files have %d of at most %d bytes (--trace-config triton,%s)", f.written, f.most, SettingMost)
		}
		f.dropped += uint64(pieces)
		return
	}
	var err error
	if indexed {
		err = f.writeIndexed(text)
	} else {
		err = f.add(text)
	}
	if err == nil {
		f.written += size
	}
	if err != nil && !f.failing {
		f.log.Error().Err(err).Msg("traces are lost")
	}
	f.failing = err != nil
}

// writeIndexed writes a file of its own.
func (f *files) writeIndexed(text []byte) error {
	path := f.path + "." + strconv.Itoa(f.index)
	f.index++
	beside := path + ".part"
	whole := append(append(append(make([]byte, 0, len(text)+2), '['), text...), ']') // bound: maxGathered and one tree
	err := os.WriteFile(beside, whole, fileMode)
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		_ = os.Remove(beside)
		return fmt.Errorf("write trace file: %w", err)
	}
	return nil
}

// add appends to the file of frequency 0.
func (f *files) add(text []byte) error {
	begin, at := byte(','), f.size-1
	if f.file == nil {
		file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
		if err != nil {
			return fmt.Errorf("open trace file: %w", err)
		}
		f.file, f.size = file, 0
	}
	if f.size == 0 {
		begin, at = '[', 0
	}
	piece := append(append(append(make([]byte, 0, len(text)+2), begin), text...), ']') // bound: maxGathered and one tree
	if _, err := f.file.WriteAt(piece, at); err != nil {
		f.restore()
		return fmt.Errorf("write trace file: %w", err)
	}
	f.size = at + int64(len(piece))
	return nil
}

// restore closes the array again after the last complete trace. If that fails, too, the next write
// does it.
func (f *files) restore() {
	_ = f.file.Truncate(f.size)
	if f.size > 0 {
		_, _ = f.file.WriteAt([]byte{']'}, f.size-1)
	}
}

// close implements sink.
func (f *files) close(context.Context) error {
	if f.dropped > 0 {
		f.log.Warn().Uint64("traces", f.dropped).Msg("traces were dropped because the trace files are full")
	}
	if f.file == nil {
		return nil
	}
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("close trace file: %w", err)
	}
	return nil
}

// appendTree appends the entries of a trace, separated by commas.
//
// bound: the texts of the tree, whose copies are charged
func appendTree(b []byte, tree *trace.Tree) []byte {
	begin := len(b)
	for _, r := range tree.Records() {
		for i := range r.Entries {
			if len(b) > begin {
				b = append(b, ',')
			}
			b = appendEntry(b, r, &r.Entries[i])
		}
	}
	return b
}

// appendEntry appends one entry.
//
// bound: the texts of the tree, whose copies are charged
func appendEntry(b []byte, r *trace.Record, e *trace.Entry) []byte {
	b = strconv.AppendUint(append(b, `{"id":`...), r.ID, 10)
	switch {
	case e.Name == trace.Model:
		b = jsontext.AppendString(append(b, `,"model_name":`...), r.Model)
		b = strconv.AppendInt(append(b, `,"model_version":`...), r.Version, 10)
		if r.RequestID != "" {
			b = jsontext.AppendString(append(b, `,"request_id":`...), r.RequestID)
		}
		if r.ParentID != 0 {
			b = strconv.AppendUint(append(b, `,"parent_id":`...), r.ParentID, 10)
		}
		return append(b, '}')
	case e.Tensor != nil:
		b = append(append(b, `,"activity":"`...), e.Name...)
		b = jsontext.AppendString(append(b, `","tensor":{"name":`...), e.Tensor.Name)
		b = jsontext.AppendString(append(b, `,"data":`...), strings.ToValidUTF8(e.Tensor.Data, "\ufffd"))
		shape := infer.ShapeString(e.Tensor.Shape)
		b = append(append(b, `,"shape":"`...), shape[1:len(shape)-1]...)
		b = append(append(b, `","dtype":"`...), e.Tensor.DataType...)
		return append(b, `"}}`...)
	}
	b = append(b, `,"timestamps":[{"name":`...)
	if e.Own {
		b = jsontext.AppendString(b, string(e.Name))
	} else {
		b = append(append(append(b, '"'), e.Name...), '"')
	}
	b = strconv.AppendInt(append(b, `,"ns":`...), e.At, 10)
	return append(b, `}]}`...)
}
