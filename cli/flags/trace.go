package flags

import (
	"errors"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/server/tracing"
)

// traceParser records which trace settings come from --trace-config and which from a deprecated
// flag. The former take precedence.
type traceParser struct {
	given     map[string]bool   // keys of --trace-config
	old       map[string]string // values of deprecated flags, by the same keys
	oldLevels []string
}

func traceMode(text string) (string, error) {
	switch mode := strings.ToLower(text); mode {
	case "triton", "opentelemetry":
		return mode, nil
	}
	return "", errors.New("invalid value for trace mode option: " + text +
		`. Available options are "triton" and "opentelemetry"`)
}

func traceLevel(text string) (string, error) {
	switch strings.ToLower(text) {
	case "off", "false":
		return "OFF", nil
	case "on", "true", "min", "max", "timestamps":
		return "TIMESTAMPS", nil
	case "tensors":
		return "TENSORS", nil
	}
	return "", errors.New("invalid value for trace level option: " + text)
}

func setTraceConfig(p *parser, text string) error {
	s, ok := parseSetting(text, ",")
	if s.comma && s.name == "" {
		return errors.New("No trace mode specified. --trace-config option format is <trace mode>,<setting>=<value> or " +
			"<setting>=<value>. Got " + text)
	}
	if s.comma {
		var err error
		if s.name, err = traceMode(s.name); err != nil {
			return err
		}
	}
	if !ok {
		return errors.New("--trace-config option format is '<trace mode>,<setting>=<value>'. Got " + text)
	}

	if p.trace.given == nil {
		p.trace.given = map[string]bool{}
	}
	p.trace.given[s.key] = true
	if s.name != "" {
		addTraceSetting(&p.o.Tracing, s.name, s.key, s.value)
		return nil
	}
	var err error
	switch s.key {
	case "mode":
		p.o.Tracing.Mode, err = traceMode(s.value)
	case "level":
		var level string
		level, err = traceLevel(s.value)
		p.o.Tracing.Levels = append(p.o.Tracing.Levels, level)
	case "rate":
		p.o.Tracing.Rate, err = parseInt64(s.value)
	case "count":
		p.o.Tracing.Count, err = parseInt64(s.value)
	default: // Triton ignores it
		addTraceSetting(&p.o.Tracing, "", s.key, s.value)
	}
	if err != nil {
		return &optionError{"--trace-config " + s.key, err}
	}
	return nil
}

func addTraceSetting(trace *TraceOptions, mode, key, value string) {
	if trace.Settings == nil {
		trace.Settings = map[string][]Setting{}
	}
	trace.Settings[mode] = append(trace.Settings[mode], Setting{key, value})
}

func (p *parser) warnOldTrace(key, instead string) {
	p.warn("'--trace-%s' has been deprecated and will be removed in future releases. "+
		"Please use '--trace-config %s instead.", key, instead)
}

func (p *parser) rememberOld(key, value string) {
	if p.trace.old == nil {
		p.trace.old = map[string]string{}
	}
	p.trace.old[key] = value
}

func setOldTraceFile(p *parser, text string) error {
	p.warnOldTrace("file", "triton,file=<filepath>")
	p.rememberOld("file", text)
	return nil
}

func addOldTraceLevel(p *parser, text string) error {
	p.warnOldTrace("level", "level=<OFF|TIMESTAMPS|TENSORS>")
	level, err := traceLevel(text)
	if err != nil {
		return err
	}
	p.rememberOld("level", "")
	p.trace.oldLevels = append(p.trace.oldLevels, level)
	return nil
}

// setOldTrace returns the setter of a deprecated flag with a number.
func setOldTrace(key, instead string) func(*parser, string) error {
	return func(p *parser, text string) error {
		p.warnOldTrace(key, instead)
		n, err := parseInt(text)
		if err != nil {
			return err
		}
		p.rememberOld(key, strconv.Itoa(n))
		return nil
	}
}

// finish applies deprecated flags whose settings --trace-config does not set.
func (t *traceParser) finish(p *parser) {
	for _, row := range []struct{ key, name string }{
		{"level", "level"}, {"rate", "rate value"}, {"count", "count"}, {"file", "file"}, {"log-frequency", "log-frequency"},
	} {
		value, old := t.old[row.key]
		switch {
		case !old:
		case t.given[row.key]:
			p.warn("Overriding deprecated '--trace-%s' in favor of provided %s in --trace-config!", row.key, row.name)
		case row.key == "level":
			p.o.Tracing.Levels = t.oldLevels
		case row.key == "rate":
			p.o.Tracing.Rate, _ = parseInt64(value) // Itoa has formatted it
		case row.key == "count":
			p.o.Tracing.Count, _ = parseInt64(value)
		default:
			addTraceSetting(&p.o.Tracing, "triton", row.key, value)
		}
	}
}

// config returns the server's trace settings.
func (t *TraceOptions) config(getenv func(string) string) tracing.Config {
	c := tracing.Config{Mode: tracing.Mode(t.Mode), Rate: uint32(t.Rate), Count: int32(t.Count), Getenv: getenv}
	for _, name := range t.Levels {
		level, _ := tracing.ParseLevel(name) // traceLevel has validated it
		c.Level |= level
	}
	for _, s := range t.Settings[t.Mode] {
		c.Settings = append(c.Settings, tracing.Pair(s))
	}
	return c
}

// recordFlags are about the recording of requests, which tritonserver lacks.
func recordFlags() []flag {
	names := func(field func(*Options) *[]string) func(*parser, string) error {
		return func(p *parser, text string) error {
			for name := range strings.SplitSeq(text, ",") {
				if name == "" {
					return errors.New("want names, separated by commas")
				}
				*field(p.o) = append(*field(p.o), name)
			}
			return nil
		}
	}
	return []flag{
		word("record", "Record clients' requests and their responses in files in this directory, for nereid replay. Default: none.",
			func(o *Options) *string { return &o.Record.Directory }),
		row("record-models", "<string>", "Models whose requests --record keeps, separated by commas. Default: all.",
			names(func(o *Options) *[]string { return &o.Record.Models })),
		row("record-redact", "<string>", "Names of inputs, outputs and parameters whose values --record omits, separated by commas. Default: none.",
			names(func(o *Options) *[]string { return &o.Record.Redact })),
		bounded("record-max-requests", "Maximum number of files in the directory of --record.",
			func(o *Options) *int64 { return &o.Record.MaxRequests }),
		bounded("record-max-bytes", "Maximum size of all files in the directory of --record, in bytes.",
			func(o *Options) *int64 { return &o.Record.MaxBytes }),
	}
}
