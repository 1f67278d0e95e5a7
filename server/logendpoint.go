package server

import (
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// serveLogging serves GET and POST /v2/logging.
func (h *HTTP) serveLogging(w *http1.Reply, r *http1.Request) error {
	if r.Method == http.MethodPost {
		err := h.withBody(r, func(body []byte, _ *memory.Charge) error {
			t, err := parseJSON(new(jsontext.Scanner), body)
			if err != nil {
				return err
			}
			h.logging.ChangeLogSettings(func(s *LogSettings) { err = readLogSettings(t.Root(), s) })
			return err
		})
		if err != nil {
			return err
		}
	}
	w.Send(http.StatusOK, appendLogSettings(nil, h.logging.LogSettings()))
	return nil
}

// readLogSettings changes s by the members of v, in a fixed order; one that is
// wrong leaves those before it in force.
func readLogSettings(v jsontext.Value, s *LogSettings) error {
	given := func(name string) (jsontext.Value, bool) {
		m := v.Member(name)
		return m, m.Exists() && !m.IsNull()
	}
	if _, ok := given("log_file"); ok {
		return ErrLogFile
	}
	for _, field := range [...]struct {
		name string
		on   *bool
	}{{"log_info", &s.Info}, {"log_warning", &s.Warning}, {"log_error", &s.Error}} {
		if m, ok := given(field.name); ok {
			on, err := m.Bool()
			if err != nil {
				return err
			}
			*field.on = on
		}
	}
	if m, ok := given("log_verbose_level"); ok {
		level, err := m.Uint()
		if err != nil {
			return err
		}
		s.VerboseLevel = uint32(level)
	}
	if m, ok := given("log_format"); ok {
		text, err := m.Text()
		if err != nil {
			return err
		}
		format := text.String()
		if format != LogFormatDefault && format != LogFormatISO8601 {
			return infer.Errorf(infer.Unavailable, "invalid argument for --log_format, got: %s", format)
		}
		s.Format = format
	}
	return nil
}

func appendLogSettings(b []byte, s LogSettings) []byte {
	b = jsontext.AppendString(append(b, `{"log_file":`...), s.File)
	b = strconv.AppendBool(append(b, `,"log_info":`...), s.Info)
	b = strconv.AppendBool(append(b, `,"log_warning":`...), s.Warning)
	b = strconv.AppendBool(append(b, `,"log_error":`...), s.Error)
	b = strconv.AppendUint(append(b, `,"log_verbose_level":`...), uint64(s.VerboseLevel), 10)
	b = jsontext.AppendString(append(b, `,"log_format":`...), s.Format)
	return append(b, '}')
}
