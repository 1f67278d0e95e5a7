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

// What a tensor of strings holds, and how many parameters a request has.
const (
	stringCount    = 10000
	stringLength   = 16
	parameterCount = 100
)

// The model of parameters reads all of them and returns them.
var (
	words      = subject{"/tmp/ex/tm", kserve.DataType_TYPE_STRING}
	parameters = subject{"bench/roundtrip/parameters", kserve.DataType_TYPE_FP32}
)

//go:embed floor.py
var floorScript string

// measureValues measures what Python's objects cost: strings and parameters,
// each beside what numpy and json need for the same conversions by themselves.
func (s *settings) measureValues(span time.Duration, ping time.Duration, table *measure.Table) error {
	floor, err := s.pythonFloor(span)
	if err != nil {
		return fmt.Errorf("measure Python by itself: %w", err)
	}
	table.Row(fmt.Sprintf("numpy: %d strings of known length", stringCount), floor.known, "", "", "", "", "")
	table.Row(fmt.Sprintf("numpy: %d strings", stringCount), floor.strings, "", "", "", "", "")
	table.Row(fmt.Sprintf("json: %d parameters", parameterCount), floor.parameters, "", "", "", "", "")
	for _, row := range []struct {
		name  string
		of    subject
		batch func(*identity) *batch
		floor time.Duration
	}{
		{fmt.Sprintf("round trip, %d strings of %d B", stringCount, stringLength), words, stringBatch, floor.strings},
		{fmt.Sprintf("round trip, 1 × 16 B, %d parameters", parameterCount), parameters, parameterBatch, floor.parameters},
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

// measureSubject starts a model, measures what make makes, and ends the model.
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

// stringBatch is one request with strings that differ.
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

// parameterBatch is one request with texts and numbers as parameters.
func parameterBatch(i *identity) *batch {
	b := i.batch(1, 16)
	for n := range parameterCount {
		p := infer.Parameter{Name: fmt.Sprintf("parameter%d", n), Kind: infer.IntParameter, Int: int64(n)}
		if n%2 == 0 {
			p.Kind, p.String = infer.StringParameter, fmt.Sprintf("value %d", n)
		}
		b.requests[0].Parameters = append(b.requests[0].Parameters, p)
	}
	return b
}

// pythonFloor is how long the interpreter's libraries take for conversions of
// the same strings and parameters.
type pythonFloor struct {
	known      time.Duration // strings there and back, told their length
	strings    time.Duration // finding it, as a stub has to
	parameters time.Duration
}

func (s *settings) pythonFloor(span time.Duration) (floor pythonFloor, err error) {
	python := s.python
	if python == "" {
		python = "python3"
	}
	command := exec.Command(python, "-c", floorScript, fmt.Sprint(stringCount), fmt.Sprint(stringLength),
		fmt.Sprint(parameterCount), fmt.Sprint(span.Seconds()/3))
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return floor, err
	}
	if _, err := fmt.Sscan(string(output), &floor.known, &floor.strings, &floor.parameters); err != nil {
		return floor, fmt.Errorf("it printed %q, want three times: %w", output, err)
	}
	return floor, nil
}
