package openai

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest"
)

// The forms of requests to models, as in Config.Format.
const (
	FormatVLLM        = "vllm"
	FormatTensorRTLLM = "tensorrtllm"
)

// DefaultMaxTokens is the default of Config.DefaultMaxTokens.
const DefaultMaxTokens = 16

// The groups of endpoints that can be restricted.
const (
	groupInference  = "inference"
	groupRepository = "model-repository"
	groupMetrics    = "metrics"
	groupHealth     = "health"
)

// Config has the address of the front end and the form of its requests to models. The zero value
// listens on all addresses at a port that the kernel chooses, without chat.
type Config struct {
	// REST has the address and the limits. Its restrictions and forwarded headers are not used.
	REST rest.Config
	// DefaultMaxTokens, --openai-default-max-tokens, is the default of max_tokens in requests; 0 is
	// the constant DefaultMaxTokens.
	DefaultMaxTokens int
	// Format, --openai-backend, is the form of requests for all models. If empty, models with the
	// backend vllm use FormatVLLM, and all others FormatTensorRTLLM.
	Format string
	// Tensors, --openai-tensor, renames tensors of requests and responses to the models' own names.
	Tensors map[string]string
	// Tokenizer, --openai-tokenizer, is the folder of a tokenizer, or its tokenizer_config.json,
	// whose template renders the messages of a chat into a prompt. ChatTemplate,
	// --openai-chat-template, is a file with a template that replaces it. Without both there is no
	// chat.
	Tokenizer, ChatTemplate string
	// Restricted, --openai-restricted-api, names groups of endpoints that need a header.
	Restricted []server.Restriction
	// LoadsOnRequest lets clients load and unload models.
	LoadsOnRequest bool
	// Exposition renders the metrics; nil: /metrics is not served.
	Exposition http.Handler
}

// tensors are the names that Config.Tensors can replace.
var tensors = []string{
	"text_input", "stream", "max_tokens", "stop_words", "top_p", "frequency_penalty", "presence_penalty", "temperature", "seed",
	"exclude_input_in_output", "sampling_parameters", "return_logprobs", "return_num_input_tokens", "return_num_output_tokens",
	"embedding_request", "text_output", "logprobs", "num_input_tokens", "num_output_tokens",
}

// Validate names the first invalid field.
func (c Config) Validate() error {
	if err := c.REST.Validate(); err != nil {
		return err
	}
	if c.Format != "" && c.Format != FormatVLLM && c.Format != FormatTensorRTLLM {
		return fmt.Errorf("Format is %q, want %q or %q", c.Format, FormatVLLM, FormatTensorRTLLM)
	}
	for _, role := range slices.Sorted(maps.Keys(c.Tensors)) {
		if err := CheckTensor(role); err != nil {
			return fmt.Errorf("Tensors: %w", err)
		}
	}
	_, err := newRestrictions(c.Restricted)
	return err
}

// newRestrictions rejects unknown groups and groups named twice, with the texts that Triton prints
// at startup.
func newRestrictions(list []server.Restriction) (server.Restrictions, error) {
	restrictions := server.Restrictions{}
	for _, r := range list {
		for _, group := range r.Groups {
			if err := CheckGroup(group); err != nil {
				return nil, err
			}
			if _, twice := restrictions[group]; twice {
				return nil, fmt.Errorf("restricted api '%s' can not be specified in multiple config groups", group)
			}
			restrictions[group] = r // bound: the groups
		}
	}
	return restrictions, nil
}

// CheckTensor rejects a tensor that Config.Tensors cannot rename.
func CheckTensor(role string) error {
	if !slices.Contains(tensors, role) {
		return fmt.Errorf("unknown tensor '%s', want one of %s", role, strings.Join(tensors, ", "))
	}
	return nil
}

// Groups returns the valid groups of Config.Restricted.
func Groups() []string { return []string{groupInference, groupRepository, groupMetrics, groupHealth} }

// CheckGroup rejects an unknown group, with Triton's text.
func CheckGroup(name string) error {
	if groups := Groups(); !slices.Contains(groups, name) {
		return fmt.Errorf("Unknown API '%s'. Available APIs: ['%s']", name, strings.Join(groups, "', '")) // bound: the groups
	}
	return nil
}

// tensor returns the models' name of a role.
func (c *Config) tensor(role string) string { return cmp.Or(c.Tensors[role], role) }
