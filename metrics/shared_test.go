package metrics

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
)

func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantText fails the test unless err is a Refusal that contains text.
func WantText(t *testing.T, err error, text string) {
	t.Helper()
	var own *Refusal
	if !errors.As(err, &own) || !strings.Contains(own.Text, text) {
		t.Errorf("got error %v, want a Refusal with %q", err, text)
	}
}

func Render(t *testing.T, r *Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func Contains(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}
