"""Further questions to a finished release, in words: post-processing of its measurement, free of any charge; and 'dpdist ask'."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "questions",
    commands={"ask": "dpdist.plugins.questions.ask_command:ask"},
    question_readers=("dpdist.plugins.questions.question_answers:QUESTIONS_IN_WORDS",),
)
