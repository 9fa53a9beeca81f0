package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"correlator/internal/out/keep"
)

const (
	samplesPath = "/samples"

	// reasonHeader marks answers whose body is for people.
	reasonHeader = "Correlator-Reason"

	// maxSamplesBytes bounds what is read: several times what an agent answers with.
	maxSamplesBytes = 16 << 20
)

// Keeper answers queries for samples that the agent keeps. It must be safe for concurrent use.
type Keeper interface {
	// Answer calls use with the answer, which is valid until use returns. An error that is keep.ErrBusy
	// means that another answer is in use.
	Answer(ctx context.Context, q keep.Query, use func(*keep.Answer) error) error
	// Slow returns what is kept of slow transactions; nil: there is no rule for them.
	Slow() *keep.SlowStats
}

// The parameters of a query.
const (
	paramID      = "id"
	paramService = "service"
	paramSince   = "since"
	paramOrder   = "order"
	paramMost    = "most"
)

func serveSamples(w http.ResponseWriter, r *http.Request, source Source, keeper Keeper) {
	refuse := func(status int, reason string) {
		w.Header().Set(reasonHeader, "body")
		http.Error(w, reason, status)
	}
	if keeper == nil {
		refuse(http.StatusNotFound, "the agent keeps no samples: start it with --keep 10m (or the key keep of its file)")
		return
	}
	params := r.URL.Query()
	q := keep.Query{ID: params.Get(paramID), Service: params.Get(paramService),
		Order: keep.Order(params.Get(paramOrder))}
	var err error
	if text := params.Get(paramSince); text != "" {
		if q.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			refuse(http.StatusBadRequest, err.Error())
			return
		}
	}
	if text := params.Get(paramMost); text != "" {
		if q.Most, err = strconv.Atoi(text); err != nil {
			refuse(http.StatusBadRequest, err.Error())
			return
		}
	}
	unknown := unknownWaits(source.Waits())
	var sent error
	err = keeper.Answer(r.Context(), q, func(answer *keep.Answer) error {
		answer.UnknownWaits = unknown
		w.Header().Set("Content-Type", "application/json")
		sent = json.NewEncoder(w).Encode(answer) // an error means that the client is gone
		return sent
	})
	switch {
	case err == nil || sent != nil:
	case errors.Is(err, keep.ErrBusy):
		refuse(http.StatusServiceUnavailable, err.Error())
	default:
		refuse(http.StatusBadRequest, err.Error())
	}
}

// Samples requests what is kept of transactions. When no agent runs the error is errNoAgent, with a
// remedy.
func (c *Client) Samples(ctx context.Context, q keep.Query) (*keep.Answer, error) {
	params := url.Values{}
	set := func(name, value string) {
		if value != "" {
			params.Set(name, value)
		}
	}
	set(paramID, q.ID)
	set(paramService, q.Service)
	set(paramOrder, string(q.Order))
	if !q.Since.IsZero() {
		set(paramSince, q.Since.Format(time.RFC3339Nano))
	}
	if q.Most > 0 {
		set(paramMost, strconv.Itoa(q.Most))
	}
	answer := new(keep.Answer)
	err := c.get(ctx, samplesPath+"?"+params.Encode(), maxSamplesBytes, answer)
	return answer, err
}
