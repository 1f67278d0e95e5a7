package platforms

import (
	"fmt"
	"net/http"
	"regexp"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

// VertexConfig configures the front end of Vertex AI.
type VertexConfig struct {
	// REST is as in SageMakerConfig.
	REST rest.Config
	// PredictRoute and HealthRoute, AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE, are regular expressions
	// for whole paths. Listen requires both.
	PredictRoute, HealthRoute string
	// DefaultModel, --vertex-ai-default-model, is the model of predictions; default: the only ready
	// model.
	DefaultModel string
	// Exposition renders the metrics; nil: they are not served.
	Exposition http.Handler
}

const (
	// vertexBinary begins the media type of bodies with binary tensors.
	vertexBinary = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
	// redirectHeader names another endpoint for the request.
	redirectHeader = "X-Vertex-Ai-Triton-Redirect"
)

// Vertex is the front end of Vertex AI
// (https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements).
// Listen, then Run it once.
type Vertex struct {
	*rest.FrontEnd
	cfg  VertexConfig
	core server.Core
	ends *rest.Endpoints
	// Set by Listen.
	predict, health *regexp.Regexp
	model           string
}

// NewVertex returns a front end that does not listen yet.
func NewVertex(cfg VertexConfig, parts server.Parts, log zerolog.Logger) (*Vertex, error) {
	if err := parts.Complete(); err != nil {
		return nil, err
	}
	cfg.REST.Framing, cfg.REST.ForwardPattern = inference.Framing{BinaryType: vertexBinary, ReplyHeader: true}, ""
	ends, err := rest.NewEndpoints(cfg.REST, parts, log)
	if err != nil {
		return nil, err
	}
	v := &Vertex{cfg: cfg, core: parts.Core, ends: ends}
	v.FrontEnd = rest.Front(cfg.REST, parts.Memory, v.serve, log)
	return v, nil
}

// Listen finds the model of predictions among the loaded models, and binds the
// address.
func (v *Vertex) Listen() (err error) {
	if v.cfg.PredictRoute == "" {
		return infer.Errorf(infer.InvalidArg, "API_PREDICT_ROUTE is not defined for Vertex AI endpoint")
	}
	if v.cfg.HealthRoute == "" {
		return infer.Errorf(infer.InvalidArg, "AIP_HEALTH_ROUTE is not defined for Vertex AI endpoint")
	}
	if v.predict, err = wholePath("AIP_PREDICT_ROUTE", v.cfg.PredictRoute); err != nil {
		return err
	}
	if v.health, err = wholePath("AIP_HEALTH_ROUTE", v.cfg.HealthRoute); err != nil {
		return err
	}
	if v.model, err = v.findModel(); err != nil {
		return err
	}
	return v.FrontEnd.Listen()
}

func wholePath(name, pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	if err != nil {
		return nil, infer.Errorf(infer.InvalidArg, "%s is %q, want a regular expression (RE2): %v", name, pattern, err)
	}
	return re, nil
}

func (v *Vertex) findModel() (string, error) {
	ready, err := v.core.Index(true)
	if err != nil {
		return "", fmt.Errorf("list the models that are ready: %w", err)
	}
	if v.cfg.DefaultModel != "" {
		for _, m := range ready {
			if m.GetName() == v.cfg.DefaultModel {
				return v.cfg.DefaultModel, nil
			}
		}
		return "", infer.Errorf(infer.InvalidArg, "Expect the default model '%s' is loaded", v.cfg.DefaultModel)
	}
	if len(ready) != 1 {
		return "", infer.Errorf(infer.InvalidArg, "Expect the model repository contains only a single model if default model is not specified")
	}
	return ready[0].GetName(), nil
}

func (v *Vertex) serve(w *http1.Reply, r *http1.Request) {
	switch path := r.Path(); {
	case v.health.MatchString(path):
		if v.ends.Allow(w, r, server.GroupHealth) {
			serveHealth(w, r, func() (bool, error) { return v.core.Ready(r.Context()) })
		}
	case v.predict.MatchString(path):
		v.servePrediction(w, r)
	default:
		refuse(w, http.StatusBadRequest)
	}
}

func (v *Vertex) servePrediction(w *http1.Reply, r *http1.Request) {
	to, redirected := r.Header(redirectHeader)
	switch {
	case redirected && r.Method != http.MethodPost:
		refuse(w, http.StatusMethodNotAllowed)
	case redirected && to == "metrics" && v.cfg.Exposition != nil:
		rest.WriteExposition(w, r, v.cfg.Exposition, http1.PlainText)
	case redirected:
		v.ends.ServeAs(w, r, "/"+to)
	case !v.ends.Allow(w, r, server.GroupInference):
	case r.Method != http.MethodPost:
		rest.RefuseMethod(w)
	default:
		if err := v.ends.Infer(w, r, v.model, infer.LatestVersion); err != nil {
			rest.WriteError(w, err)
		}
	}
}
