package integration

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestAcceleratorIsChosen checks the choice of the stub's accelerator, by a setting and by the
// environment, and that the log names it. Models find the same in their process.
func TestAcceleratorIsChosen(t *testing.T) {
	library := filepath.Join(testkit.Root(t), "stub/pb_stub/_accelerator.abi3.so")
	if _, err := os.Stat(library); errors.Is(err, fs.ErrNotExist) {
		testkit.NotCompiled(t)
	}
	for _, test := range []struct {
		name, variable string
		flags          []string
		log, model     string
	}{
		{"usual", "on", nil, "accelerator=on", "accelerated: True"},
		{"setting", "on", []string{"--backend-config=python,accelerator=off"}, "NEREID_ACCELERATOR is off", "accelerated: False"},
		{"program", "on", []string{"--backend-config=python,accelerator=off", "--backend-config=python,stub-template=off"}, "NEREID_ACCELERATOR is off", "accelerated: False"},
		{"environment", "off", nil, "NEREID_ACCELERATOR is off", "accelerated: False"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("NEREID_ACCELERATOR", test.variable)
			for _, python := range testkit.Pythons(t) {
				t.Run(python.String(), func(t *testing.T) {
					root := writeFiles(t, map[string]string{
						"m/config.pbtxt": oneFloat,
						"m/1/model.py":   executing("import sys; print('accelerated:', sys.modules['pb_stub.accelerator'].module is not None, flush=True)"),
					})
					s := start(t, python.Path, root, test.flags...)
					if status, text := s.infer("m", -1); status != 200 {
						t.Errorf("got %d %s, want 200", status, text)
					}
					for _, want := range []string{test.log, test.model} {
						if !s.prints(want) {
							t.Errorf("the server has not printed %q", want)
						}
					}
					s.stop()
				})
			}
		})
	}
}
