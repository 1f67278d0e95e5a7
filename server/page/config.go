package page

import (
	"errors"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/page/admission"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// MaxConnections bounds the connections of the page.
const MaxConnections = 64

// Config configures the page.
type Config struct {
	// Config has the address, the limits, the server's name and version, and the restricted groups
	// of endpoints.
	rest.Config
	// Explicit means that clients control which models are loaded.
	Explicit bool
	// Build is the version of the program, "" if unknown.
	Build string
}

// Files reads configurations of models from the repository; models.Registry implements it.
type Files interface {
	ConfigText(model string, limit int64) (file string, text []byte, err error)
}

// New checks cfg and returns a front end that does not listen yet.
func New(cfg Config, parts server.Parts, files Files, status Status, log zerolog.Logger) (*rest.FrontEnd, error) {
	p, err := newPages(cfg, parts, files, status)
	if err != nil {
		return nil, err
	}
	return rest.Front(p.cfg.Config, parts.Memory, p.Serve, log), nil
}

func newPages(cfg Config, parts server.Parts, files Files, status Status) (*Pages, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := parts.Complete(); err != nil {
		return nil, err
	}
	if files == nil || status == nil {
		return nil, errors.New("Files and Status are both required")
	}
	cfg.Config = cfg.WithDefaults()
	cfg.MaxConnections = min(cfg.MaxConnections, MaxConnections)
	gate, err := admission.New(cfg.Hosts)
	if err != nil {
		return nil, err
	}
	restrictions, err := server.NewRestrictions(cfg.Restricted)
	if err != nil {
		return nil, err
	}
	templates, err := parseTemplates()
	if err != nil {
		return nil, err
	}
	assets, err := readAssets()
	if err != nil {
		return nil, err
	}
	return &Pages{
		cfg: cfg, core: parts.Core, files: files, status: status, gate: gate, restrictions: restrictions, templates: templates, assets: assets,
		allocate: parts.Allocate, bodies: &body.Gatherer{Open: parts.Open, Account: parts.Memory, MaxBytes: cfg.MaxInputBytes},
	}, nil
}
