package devices

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/panics"
)

// DefaultCapability is the minimum compute capability of a device for instances, unless the
// operator sets another.
const DefaultCapability = 6.0

// Config configures the counting of devices.
type Config struct {
	// Children is the table of child processes in which the helper is started.
	Children *launch.Children
	// Helper is the directory of the helper's Python files, with its __main__.py.
	Helper string
	// Interpreters lists the Pythons that may run it, the best first.
	Interpreters func() ([]string, error)
	// MinCapability is the minimum compute capability of usable devices.
	MinCapability float64
	// Measure keeps the helper for Samples.
	Measure bool
	Log     zerolog.Logger

	CountTimeout  time.Duration // for the start of a helper and the count; 0 is 30 s
	SampleTimeout time.Duration // for one sample of all devices; 0 is 3 s
	EndTimeout    time.Duration // for the end of a killed helper; 0 is 2 s
	Pause         time.Duration // before a lost helper is restarted, doubled up to a minute; 0 is 1 s
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field     *time.Duration
		otherwise time.Duration
	}{{&c.CountTimeout, 30 * time.Second}, {&c.SampleTimeout, 3 * time.Second}, {&c.EndTimeout, 2 * time.Second}, {&c.Pause, time.Second}} {
		if *d.field == 0 {
			*d.field = d.otherwise
		}
	}
	return c
}

// maxPause is the maximum pause before a repeatedly lost helper is restarted.
const maxPause = time.Minute

// Device is a device as the driver shows it to this process and to those of models.
type Device struct {
	Number int32  `json:"number"` // the driver's, used by models and configs
	Name   string `json:"name"`
	UUID   string `json:"uuid"`   // "GPU-…"
	Memory uint64 `json:"memory"` // bytes
	Major  int    `json:"major"`  // of the compute capability
	Minor  int    `json:"minor"`
}

// Capability returns the compute capability as flags and texts write it: 8.9 for 8 and 9.
func (d *Device) Capability() float64 { return float64(10*d.Major+d.Minor) / 10 }

// Devices are the devices of this process. The package comment describes their states.
type Devices struct {
	config  Config
	cancel  context.CancelFunc
	ended   chan struct{} // closed by keep, when nothing is left
	counted chan struct{} // closed by keep, when list is final
	list    []Device      // set before counted is closed

	mu     sync.Mutex        // held for one exchange with the helper
	helper *helper           // nil while none answers
	energy map[string]*meter // by UUID. bound: the devices
	told   bool              // the log has reported the lack of metrics
}

// Start begins to count. The caller closes the result.
func Start(config Config) *Devices {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Devices{
		config: config.withDefaults(), cancel: cancel, ended: make(chan struct{}), counted: make(chan struct{}),
		energy: make(map[string]*meter),
	}
	panics.Go(config.Log, panics.Life, func() {
		defer close(d.ended)
		settle := sync.OnceFunc(func() { close(d.counted) })
		defer settle() // otherwise all loads would wait
		d.keep(ctx, settle)
	}, nil)
	return d
}

// Close ends the helper. Loads that wait for the count continue without devices.
func (d *Devices) Close() {
	if d == nil {
		return
	}
	d.cancel()
	<-d.ended
}

// List waits for the count and returns all devices, by number.
func (d *Devices) List() []Device {
	if d == nil {
		return nil
	}
	<-d.counted
	return d.list
}

// Usable waits for the count and lists the numbers of the devices for instances, ascending.
func (d *Devices) Usable() (numbers []int32) { // bound: the devices
	for _, one := range d.List() {
		if one.Capability() >= d.config.MinCapability {
			numbers = append(numbers, one.Number)
		}
	}
	return numbers
}

// keep counts the devices, and keeps a helper running until ctx ends. settle marks the count as
// final.
func (d *Devices) keep(ctx context.Context, settle func()) {
	h, err := d.open(ctx)
	d.show(h, err)
	if err != nil {
		return
	}
	d.list = h.devices
	if !d.config.Measure || len(d.list) == 0 {
		settle()
		if err := h.close(); err != nil {
			d.config.Log.Warn().Err(err).Msg("the device helper did not exit")
		}
		return
	}
	d.publish(h) // before settle, because a load that waits for the count may ask for the memory in use
	settle()
	for pause := d.config.Pause; ; pause = min(2*pause, maxPause) {
		if h != nil {
			began := time.Now()
			err = d.attend(ctx, h)
			if time.Since(began) > maxPause {
				pause = d.config.Pause
			}
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errStuck) { // the next one would hang too
			d.config.Log.Error().Err(err).Msg("there are no GPU metrics until the server is restarted")
			return
		}
		d.config.Log.Warn().Err(err).Dur("wait", pause).Msg("there are no GPU metrics until the device helper runs again")
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if h, err = d.open(ctx); err != nil {
			continue
		}
		d.publish(h)
		if len(h.devices) < len(d.list) {
			d.config.Log.Warn().Int("devices", len(h.devices)).Msg("the CUDA driver shows fewer devices than at startup; models stay where they are")
		}
	}
}

// attend waits until a published helper is lost or given up, or ctx ends, and ends it.
func (d *Devices) attend(ctx context.Context, h *helper) error {
	defer context.AfterFunc(ctx, panics.Guard(d.config.Log, panics.Life, h.process.Kill, nil))()
	defer h.closeFiles()
	d.Samples() // the start of this server's energy count
	select {
	case <-ctx.Done():
	case <-h.gone:
	case <-h.given:
	}
	d.publish(nil) // a running exchange ends with the helper
	return h.lost()
}

// publish sets the helper that can be asked.
func (d *Devices) publish(h *helper) {
	d.mu.Lock()
	d.helper = h
	d.mu.Unlock()
}

// show logs the result of the count.
func (d *Devices) show(h *helper, err error) {
	log := d.config.Log
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		log.Warn().Err(err).Msg("counting CUDA devices failed, so no instance is placed on a GPU")
	case len(h.devices) == 0:
		log.Info().Msg("the CUDA driver found no device")
	default:
		for i := range h.devices {
			one := &h.devices[i]
			line := log.Info()
			note := "CUDA device"
			if one.Capability() < d.config.MinCapability {
				line, note = log.Warn(), "CUDA device is not used: its compute capability is below --min-supported-compute-capability"
			}
			line.Int32("device", one.Number).Str("name", one.Name).Str("uuid", one.UUID).Uint64("bytes", one.Memory).
				Float64("capability", one.Capability()).Msg(note)
		}
	}
}
