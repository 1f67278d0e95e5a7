package platforms

import (
	"cmp"
	"errors"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/body"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

// SageMakerConfig configures the front end of SageMaker.
type SageMakerConfig struct {
	// REST has the address, the limits and the restrictions. Its framing and forwarded headers are
	// not used.
	REST rest.Config
	// DefaultModel, SAGEMAKER_TRITON_DEFAULT_MODEL_NAME, is the model of /invocations; default
	// "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME".
	DefaultModel string
	// LivePing (SAGEMAKER_TRITON_PING_MODE is "live") makes /ping report whether the server lives
	// instead of whether it is ready.
	LivePing bool
	// InferenceType, SAGEMAKER_TRITON_INFERENCE_TYPE, is the action of /invocations: "infer"
	// (default), "generate" or "generate_stream".
	InferenceType string
	// Repositories is required; the platform loads models through it.
	Repositories Repositories
	// ModelDirectory, --sagemaker-model-directory, is where the platform puts models, at
	// <ModelDirectory>/<hash>/model; default "/opt/ml/models".
	ModelDirectory string
}

// sageMakerBinary begins the media type of bodies with binary tensors.
const sageMakerBinary = "application/vnd.sagemaker-triton.binary+json;json-header-size="

type sageMaker struct {
	cfg  SageMakerConfig
	core server.Core
	ends *rest.Endpoints
	many *multiModel
}

// NewSageMaker returns the front end of SageMaker (https://docs.aws.amazon.com/sagemaker,
// "Use Your Own Inference Code"), for one model and for many.
func NewSageMaker(cfg SageMakerConfig, parts server.Parts, log zerolog.Logger) (*rest.FrontEnd, error) {
	cfg.DefaultModel = cmp.Or(cfg.DefaultModel, "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME")
	cfg.InferenceType = cmp.Or(cfg.InferenceType, "infer")
	if cfg.Repositories == nil {
		return nil, errors.New("Repositories is nil, want those of the registry")
	}
	cfg.ModelDirectory = cmp.Or(cfg.ModelDirectory, "/opt/ml/models")
	if err := parts.Complete(); err != nil {
		return nil, err
	}
	cfg.REST.Framing, cfg.REST.ForwardPattern = inference.Framing{BinaryType: sageMakerBinary}, ""
	ends, err := rest.NewEndpoints(cfg.REST, parts, log)
	if err != nil {
		return nil, err
	}
	s := &sageMaker{cfg: cfg, core: parts.Core, ends: ends, many: &multiModel{
		base: filepath.Clean(cfg.ModelDirectory), core: parts.Core, repositories: cfg.Repositories, ends: ends,
		bodies: &body.Gatherer{Open: parts.Open, Account: parts.Memory, MaxBytes: cfg.REST.WithDefaults().MaxInputBytes},
		log:    log, models: make(map[string]*hosted),
	}}
	return rest.Front(cfg.REST, parts.Memory, s.serve, log), nil
}

func (s *sageMaker) serve(w *http1.Reply, r *http1.Request) {
	switch r.Path() {
	case "/ping":
		if s.ends.Allow(w, r, server.GroupHealth) {
			serveHealth(w, r, s.healthy(r))
		}
	case "/invocations":
		if s.ends.Allow(w, r, server.GroupInference) {
			s.invoke(w, r)
		}
	default:
		if below, ok := strings.CutPrefix(r.Path(), "/models"); ok {
			s.many.serve(w, r, below)
			return
		}
		refuse(w, http.StatusBadRequest)
	}
}

func (s *sageMaker) healthy(r *http1.Request) func() (bool, error) {
	if s.cfg.LivePing {
		return s.core.Live
	}
	return func() (bool, error) { return s.core.Ready(r.Context()) }
}

func (s *sageMaker) invoke(w *http1.Reply, r *http1.Request) {
	if r.Method != http.MethodPost {
		rest.RefuseMethod(w)
		return
	}
	var err error
	switch s.cfg.InferenceType {
	case "infer":
		err = s.ends.Infer(w, r, s.cfg.DefaultModel, infer.LatestVersion)
	case "generate", "generate_stream":
		err = s.ends.Generate(w, r, s.cfg.DefaultModel, infer.LatestVersion, s.cfg.InferenceType == "generate_stream")
	default:
		err = infer.Errorf(infer.InvalidArg, "Server has invalid inference type '%s'. Must be one of: infer, generate, generate_stream.", s.cfg.InferenceType)
	}
	if err != nil {
		rest.WriteError(w, err)
	}
}
