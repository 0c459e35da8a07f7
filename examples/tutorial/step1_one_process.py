"""Tutorial, step 1: an ordinary Keras program."""

import keras
from digits import build_model, load

(x_train, y_train), test = load()

model = build_model()
optimizer = keras.optimizers.Adam(0.002)
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = []
model.fit(x_train, y_train, batch_size=32, epochs=15, validation_data=test, callbacks=callbacks, verbose=2)

model.save("digits.keras")
print(f"Test accuracy {model.evaluate(*test, verbose=0)[1]:.1%}")
