package cellagent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// Ask puts a question to a human through the agent behind a socket and waits
// for the answer, however long that takes and whether or not the host is there.
func Ask(socket, prompt, context string) (string, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return "", fmt.Errorf("reach the cell agent: %w", err)
	}
	defer c.Close()
	if err := cell.NewEncoder(c).Encode(&cellv1.Ask{Prompt: prompt, Context: context}); err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	var an cellv1.AskAnswer
	if err := cell.NewDecoder(c).Decode(&an); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the cell agent takes no more questions")
		}
		return "", fmt.Errorf("ask: %w", err)
	}
	if _, err := c.Write([]byte{1}); err != nil && an.GetError() == "" {
		return "", fmt.Errorf("confirm the answer: %w", err)
	}
	if an.GetError() != "" {
		return "", errors.New(an.GetError())
	}
	return an.GetText(), nil
}

// askSocketFromEnv is where the agent has told the session to ask.
func askSocketFromEnv() (string, error) {
	if s := os.Getenv("AIRLOCK_ASK_SOCKET"); s != "" {
		return s, nil
	}
	return "", errors.New("AIRLOCK_ASK_SOCKET is not set; this is for processes inside of a cell")
}
