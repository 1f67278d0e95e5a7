package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// ParseError reports a configuration that could not be parsed. Clients see Triton's text, which for
// a file is only its path; Detail is the sentence for the log.
type ParseError struct {
	Path   string // the file, empty for a JSON text
	Line   int    // of the offending token, from 1; 0 if unknown
	Column int    // in characters, from 1
	Reason string // the fault
}

// Error returns the text for clients.
func (e *ParseError) Error() string { return e.client().Message }

// Unwrap returns the client's error: Internal for a file, InvalidArg for JSON that came with a
// request or from a model.
func (e *ParseError) Unwrap() error { return e.client() }

func (e *ParseError) client() *infer.Error {
	if e.Path == "" {
		return infer.Errorf(infer.InvalidArg, "%s", e.Reason)
	}
	return infer.Errorf(infer.Internal, "failed to read text proto from %s", e.Path)
}

// Detail returns "<path>:<line>:<column>: <reason>", as compilers print it.
func (e *ParseError) Detail() string {
	path := e.Path
	if path == "" {
		path = "config"
	}
	if e.Line == 0 {
		return path + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d:%d: %s", path, e.Line, e.Column, e.Reason)
}

// ParseText parses the text of a config.pbtxt. path is only for the error, which is a *ParseError.
func ParseText(path string, text []byte) (*kserve.ModelConfig, error) {
	config := &kserve.ModelConfig{}
	if err := prototext.Unmarshal(text, config); err != nil { // bound: the readers of configs limit or charge the text
		return nil, parseError(path, text, err)
	}
	return config, nil
}

// ParseJSON parses the JSON form of a configuration: the override of a load request, or the answer
// of a model's auto_complete_config. Names may be the original ones or lowerCamel, and everything
// is accepted that protobuf's C++ library accepts beyond JSON, see strictJSON. Unknown names are
// errors. Empty text is the empty configuration. The error is a *ParseError.
//
// bound: the config; the answer has at most frames.MaxMap
func ParseJSON(text []byte) (*kserve.ModelConfig, error) {
	config := &kserve.ModelConfig{}
	if len(text) == 0 {
		return config, nil
	}
	first := protojson.Unmarshal(text, config)
	if first == nil {
		return config, nil
	}
	strict, ok := strictJSON(text)
	if !ok {
		return nil, jsonError(text, first)
	}
	second := protojson.Unmarshal(strict, config)
	if second == nil {
		return config, nil
	}
	if e := jsonError(strict, second); !json.Valid(text) {
		return nil, &ParseError{Reason: e.Reason} // its position does not refer to the given text
	}
	return nil, jsonError(text, first)
}

// positioned matches the errors of prototext and protojson.
var positioned = regexp.MustCompile(`(?s)^(?:syntax error )?\(line (\d+):(\d+)\): (.*)$`)

var behindString = regexp.MustCompile(`(?s)(["'])\s*(?:\n.*|\s#.*)?$`)

// parseError converts an error of Go's protobuf to a ParseError. Those errors begin with "proto:"
// and, at random, a plain or a non-breaking space.
func parseError(path string, text []byte, err error) *ParseError {
	reason := strings.TrimPrefix(err.Error(), "proto:")
	reason = strings.TrimLeft(reason, " \u00a0")
	// The text of a string includes the spaces, the lines and the comments behind it.
	reason = behindString.ReplaceAllString(reason, "$1") // bound: the config
	e := &ParseError{Path: path, Reason: reason}
	if m := positioned.FindStringSubmatch(reason); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.Column, _ = strconv.Atoi(m[2])
		e.Reason = m[3]
		return e
	}
	if strings.Contains(reason, "unexpected EOF") || strings.Contains(reason, "unexpected token") {
		e.Reason = "unexpected end of text: a bracket or a quote is not closed, or a value is missing"
		e.Line, e.Column = endOf(text)
	}
	return e
}

// endOf returns the position behind the last character of text.
//
// bound: the config
func endOf(text []byte) (line, column int) {
	lines := strings.Split(string(text), "\n")
	return len(lines), len([]rune(lines[len(lines)-1])) + 1
}

var (
	jsonUnknown = regexp.MustCompile(`^unknown field "([^"]*)"$`)
	jsonValue   = regexp.MustCompile(`(?s)^invalid value for (\w+) (?:field|type) ?(\w*): (.*)$`)
)

// jsonError is parseError for JSON, with Triton's words for the reason if it has some.
func jsonError(text []byte, err error) *ParseError {
	e := parseError("", text, err)
	if m := jsonUnknown.FindStringSubmatch(e.Reason); m != nil {
		e.Reason = m[1] + ": Cannot find field."
	} else if m := jsonValue.FindStringSubmatch(e.Reason); m != nil {
		e.Reason = fmt.Sprintf("(%s): invalid value %s for type TYPE_%s", originalName(m[2]), m[3], strings.ToUpper(m[1])) // bound: the kinds of fields
	}
	return e
}

// originalName undoes the lowerCamel form of a field's name.
func originalName(name string) string {
	return upperCase.ReplaceAllStringFunc(name, func(s string) string { return "_" + strings.ToLower(s) }) // bound: one letter
}

var upperCase = regexp.MustCompile(`[A-Z]`)
