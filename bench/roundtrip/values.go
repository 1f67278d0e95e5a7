package main

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// The strings of a tensor, and the number of parameters of a request.
const (
	stringCount    = 10000
	stringLength   = 16
	parameterCount = 100
)

// The model of parameters reads all of them, and returns them on request.
var (
	words      = subject{"examples/models/identity_bytes", kserve.DataType_TYPE_STRING}
	parameters = subject{"bench/roundtrip/parameters", kserve.DataType_TYPE_FP32}
)

//go:embed floor.py
var floorScript string

// measureValues measures the cost of Python's objects: strings and parameters, each next to the
// time that numpy and json alone need for the same conversions.
func (s *settings) measureValues(span time.Duration, ping time.Duration, table *measure.Table) error {
	floor, err := s.pythonFloor(span)
	if err != nil {
		return fmt.Errorf("measure Python by itself: %w", err)
	}
	table.Row(fmt.Sprintf("numpy: %d strings of known length", stringCount), floor.known, "", "", "", "", "")
	table.Row(fmt.Sprintf("numpy: %d strings", stringCount), floor.strings, "", "", "", "", "")
	table.Row(fmt.Sprintf("json: %d parameters read", parameterCount), floor.read, "", "", "", "", "")
	table.Row(fmt.Sprintf("json: %d parameters read and written", parameterCount), floor.written, "", "", "", "", "")
	for _, row := range []struct {
		name  string
		of    subject
		batch func(*identity) *batch
		floor time.Duration
	}{
		{fmt.Sprintf("round trip, %d strings of %d B", stringCount, stringLength), words, stringBatch, floor.strings},
		{fmt.Sprintf("round trip, %d parameters read", parameterCount), parameters, parameterBatch(false), floor.read},
		{fmt.Sprintf("round trip, %d parameters read and returned", parameterCount), parameters, parameterBatch(true), floor.written},
	} {
		times, err := s.measureSubject(span, row.of, row.batch)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		p50 := times.Quantile(0.5)
		table.Row(row.name, p50, times.Quantile(0.99), times.CPUEach(), float64(p50)/float64(ping), "",
			float64(p50)/float64(row.floor))
	}
	return nil
}

// measureSubject starts a model, measures the batch that make creates, and stops the model.
func (s *settings) measureSubject(span time.Duration, of subject, make func(*identity) *batch) (times measure.Times, err error) {
	i, err := start(s.python, of)
	if err != nil {
		return times, err
	}
	defer func() { err = errors.Join(err, i.close()) }()
	tree, err := measure.Tree(os.Getpid())
	if err != nil {
		return times, err
	}
	return make(i).measure(span, tree)
}

// stringBatch creates one request with distinct strings.
func stringBatch(i *identity) *batch {
	var content []byte
	for n := range stringCount {
		content = binary.LittleEndian.AppendUint32(content, stringLength)
		content = fmt.Appendf(content, "%0*d", stringLength, n)
	}
	b := i.batch(1, len(content))
	b.content = content
	b.requests[0].Inputs[0].DataType = infer.Bytes
	b.requests[0].Inputs[0].Shape = []int64{stringCount}
	return b
}

// parameterBatch creates one request of 16 B with strings and numbers as parameters, and a flag
// that asks for them back.
func parameterBatch(returned bool) func(*identity) *batch {
	return func(i *identity) *batch {
		b := i.batch(1, 16)
		all := []infer.Parameter{{Name: "returned", Kind: infer.BoolParameter, Bool: returned}}
		for n := range parameterCount - 1 {
			p := infer.Parameter{Name: fmt.Sprintf("parameter%d", n), Kind: infer.IntParameter, Int: int64(n)}
			if n%2 == 0 {
				p.Kind, p.String = infer.StringParameter, fmt.Sprintf("value %d", n)
			}
			all = append(all, p)
		}
		b.requests[0].Parameters = all
		return b
	}
}

// pythonFloor holds the times that the interpreter's libraries need to convert the same strings and
// parameters.
type pythonFloor struct {
	known   time.Duration // strings there and back, with known lengths
	strings time.Duration // with the lengths to find, as in a stub
	read    time.Duration // parameters
	written time.Duration // parameters read and written
}

func (s *settings) pythonFloor(span time.Duration) (floor pythonFloor, err error) {
	python := s.python
	if python == "" {
		python = "python3"
	}
	command := exec.Command(python, "-c", floorScript, fmt.Sprint(stringCount), fmt.Sprint(stringLength),
		fmt.Sprint(parameterCount), fmt.Sprint(span.Seconds()/4))
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return floor, err
	}
	if _, err := fmt.Sscan(string(output), &floor.known, &floor.strings, &floor.read, &floor.written); err != nil {
		return floor, fmt.Errorf("it printed %q, want four times: %w", output, err)
	}
	return floor, nil
}
