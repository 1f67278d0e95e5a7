package devices_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/devices"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
)

// told formats devices as "number UUID".
func told(list []devices.Device) []string {
	var texts []string
	for _, one := range list {
		texts = append(texts, fmt.Sprint(one.Number, " ", one.UUID))
	}
	return texts
}

func TestDevicesMatchTheDriver(t *testing.T) {
	a, b := "0 "+fakecuda.UUID(0), "1 "+fakecuda.UUID(1)
	for _, c := range []struct {
		name        string
		environment map[string]string
		want        []string
		usable      []int32
	}{
		{"all", nil, []string{a, b}, []int32{0, 1}},
		{"one is visible", map[string]string{"CUDA_VISIBLE_DEVICES": "1"}, []string{"0 " + fakecuda.UUID(1)}, []int32{0}},
		{"in another order", map[string]string{"CUDA_VISIBLE_DEVICES": "1,0"}, []string{"0 " + fakecuda.UUID(1), "1 " + fakecuda.UUID(0)}, []int32{0, 1}},
		{"none is visible", map[string]string{"CUDA_VISIBLE_DEVICES": ""}, nil, nil},
		{
			"an old one", map[string]string{fakecuda.Devices: "5", fakecuda.Old: "3", "CUDA_VISIBLE_DEVICES": "0,3,4"},
			[]string{a, "1 " + fakecuda.UUID(3), "2 " + fakecuda.UUID(4)}, []int32{0, 2},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.environment {
				t.Setenv(name, value)
			}
			d, _ := devices.StartFake(t, nil)
			if got := told(d.List()); !slices.Equal(got, c.want) {
				t.Errorf("devices: got %q, want %q", got, c.want)
			}
			if got := d.Usable(); !slices.Equal(got, c.usable) {
				t.Errorf("usable: got %v, want %v", got, c.usable)
			}
		})
	}
}

// TestAllFieldsOfADeviceArrive checks all fields of a device with a helper in every available
// Python.
func TestAllFieldsOfADeviceArrive(t *testing.T) {
	want := devices.Device{Number: 1, Name: "Fake Device 1", UUID: fakecuda.UUID(1), Memory: 1 << 30, Major: 9}
	for _, python := range testkit.Pythons(t) {
		d, _ := devices.StartFake(t, func(config *devices.Config) {
			config.Interpreters = func() ([]string, error) { return []string{python.Path}, nil }
		})
		if list := d.List(); len(list) != 2 || list[1] != want {
			t.Errorf("%s: got %+v, want %+v as the second", python, list, want)
		}
		testkit.Eventually(t, devices.Limit, func() bool { return len(d.Samples()) == 2 })
	}
	if got := (&devices.Device{Major: 8, Minor: 9}).Capability(); got != 8.9 {
		t.Errorf("capability: got %v, want 8.9", got)
	}
}

// TestDriverThatFails checks that the count ends for every driver fault, and that the log names it.
func TestDriverThatFails(t *testing.T) {
	for _, c := range []struct{ name, variable, value, want string }{
		{"it shows none", "FAKECUDA_ABSENT", "1", "the CUDA driver found no device"},
		{"it refuses", fakecuda.Fail, "cuInit:1=803", "cuInit: error 803"},
		{"it does not know a device", fakecuda.Fail, "cuDeviceGetUuid_v2:2=999", "cuDeviceGetUuid_v2: CUDA_ERROR_UNKNOWN (unknown error)"},
		{"it dies", fakecuda.Init, "die", "the device helper ended"},
		{"it hangs", fakecuda.Init, "hang", "does not answer within"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			d, log := devices.StartFake(t, func(config *devices.Config) {
				if c.value == "hang" {
					config.CountTimeout = 10 * time.Millisecond
				}
			})
			if list := d.List(); len(list) != 0 {
				t.Errorf("got %v, want no device", list)
			}
			if !strings.Contains(log.String(), c.want) {
				t.Errorf("the log does not say %q:\n%s", c.want, log)
			}
			if samples := d.Samples(); samples != nil {
				t.Errorf("got samples %v, want none", samples)
			}
		})
	}
}

func TestCloseEndsACountThatHangs(t *testing.T) {
	t.Setenv(fakecuda.Init, "hang")
	d, _ := devices.StartFake(t, func(config *devices.Config) { config.CountTimeout = time.Hour })
	go d.Close()
	if list := d.List(); len(list) != 0 {
		t.Errorf("got %v, want no device", list)
	}
}

// TestAnotherInterpreterCounts checks that the next interpreter is tried if one is no working
// Python.
func TestAnotherInterpreterCounts(t *testing.T) {
	python := testkit.Python(t).Path
	d, _ := devices.StartFake(t, func(config *devices.Config) {
		config.Interpreters = func() ([]string, error) { return []string{"/none/python3", "/bin/false", python}, nil }
	})
	if n := len(d.List()); n != 2 {
		t.Errorf("got %d devices, want 2", n)
	}
	none, log := devices.StartFake(t, func(config *devices.Config) {
		config.Interpreters = func() ([]string, error) { return nil, errors.New("there is no Python") }
	})
	if n := len(none.List()); n != 0 || !strings.Contains(log.String(), "there is no Python") {
		t.Errorf("got %d devices, want none, and the reason in the log:\n%s", n, log)
	}
}

func TestSamplesSayHowBusyTheDevicesAre(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	d, _ := devices.StartFake(t, nil)
	testkit.Eventually(t, devices.Limit, func() bool { return len(d.Samples()) == 1 })
	s := d.Samples()[0]
	if s.UUID != fakecuda.UUID(1) || *s.Utilization != .26 || *s.MemoryTotal != 2<<30 || *s.MemoryUsed != 100<<20 || *s.Power != 70.501 || *s.PowerLimit != 700 {
		t.Errorf("got %s %v %v %v %v %v", s.UUID, *s.Utilization, *s.MemoryTotal, *s.MemoryUsed, *s.Power, *s.PowerLimit)
	}
	if before, after := *s.Energy, *d.Samples()[0].Energy; before < 2 || before > 100 || after != before+2 {
		t.Errorf("energy: got %v and %v joules, want those since the start, two for each sample", before, after)
	}
	if share, known := d.MemoryUsed(0); !known || share != 100./2048 {
		t.Errorf("memory used: got %v, known %v, want 100 of 2048 MiB", share, known)
	}
	if _, known := d.MemoryUsed(1); known {
		t.Error("the memory of a device that is not there is known")
	}
}

// TestHelperIsReplaced checks that samples return after the helper died or hung while measuring,
// and that the energy never decreases.
func TestHelperIsReplaced(t *testing.T) {
	for _, how := range []string{"die", "hang"} {
		t.Run(how, func(t *testing.T) {
			control := filepath.Join(t.TempDir(), "control")
			t.Setenv(fakecuda.Control, control)
			d, log := devices.StartFake(t, func(config *devices.Config) { config.SampleTimeout = time.Second })
			energy := func() (joules float64) {
				testkit.Eventually(t, devices.Limit, func() bool {
					samples := d.Samples()
					if len(samples) == 2 {
						joules = *samples[0].Energy
					}
					return len(samples) == 2
				})
				return joules
			}
			before := energy()
			if err := os.WriteFile(control, []byte(how), 0o600); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, devices.Limit, func() bool { return d.Samples() == nil })
			if err := os.Remove(control); err != nil {
				t.Fatal(err)
			}
			if after := energy(); after < before {
				t.Errorf("energy went from %v to %v", before, after)
			}
			if text := log.String(); !strings.Contains(text, "there are no GPU metrics until the device helper runs again") {
				t.Errorf("the log does not say that metrics are missing:\n%s", text)
			}
		})
	}
}

// TestSilentDevicesHaveFewerFigures checks that values which a device does not report are left out.
func TestSilentDevicesHaveFewerFigures(t *testing.T) {
	control := filepath.Join(t.TempDir(), "control")
	t.Setenv(fakecuda.Control, control)
	if err := os.WriteFile(control, []byte("silent"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, _ := devices.StartFake(t, nil)
	testkit.Eventually(t, devices.Limit, func() bool { return len(d.Samples()) == 2 })
	if s := d.Samples()[0]; s.Power != nil || s.Energy != nil || s.PowerLimit == nil || s.Utilization == nil {
		t.Errorf("got %+v, want neither power nor energy", s)
	}
}

func TestNoDevicesIsNil(t *testing.T) {
	var d *devices.Devices
	if d.List() != nil || d.Usable() != nil || d.Samples() != nil {
		t.Error("a nil Devices has devices")
	}
	d.Close()
}
